#compdef mtmc
# Completion of mtmc for zsh. Put this into ~/.zshrc, after compinit:  source <(mtmc completion zsh)
_mtmc() {
    local each
    local -a whole open_ whole_told open_told
    for each in "${(@f)$(mtmc completion _words "${(j: :)words[1,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $each ]] || continue
        local word=${each%%$'\t'*} told=${each#*$'\t'}
        [[ -n $told ]] && told="$word -- $told" || told=$word
        if [[ $word == *[=/] ]]; then open_+=("$word"); open_told+=("$told")
        else whole+=("$word"); whole_told+=("$told"); fi
    done
    (( $#whole )) && compadd -l -d whole_told -a whole
    (( $#open_ )) && compadd -l -S '' -d open_told -a open_
    (( $#whole + $#open_ ))
}
compdef _mtmc mtmc
