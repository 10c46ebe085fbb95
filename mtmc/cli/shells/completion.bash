# Completion of mtmc for bash. Put this into ~/.bashrc:  source <(mtmc completion bash)
_mtmc() {
    local line=${COMP_LINE:0:COMP_POINT}
    local current=${line##*[[:space:]]} start="" each
    local -a found
    mapfile -t found < <(mtmc completion _words "$line" 2>/dev/null)
    # Readline has split the word where COMP_WORDBREAKS says, and replaces what stands after the last such sign.
    [[ $COMP_WORDBREAKS == *=* && $current == *=* ]] && start=${current%"${current##*=}"}
    [[ $COMP_WORDBREAKS == *:* && ${current#"$start"} == *:* ]] && start=${current%"${current##*:}"}
    COMPREPLY=()
    for each in "${found[@]}"; do
        each=${each%%$'\t'*}
        COMPREPLY+=("${each#"$start"}")
    done
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/] ]] && compopt -o nospace 2>/dev/null
    [[ ${COMPREPLY[0]} == */* || $current == *=*[./~]* ]] && compopt -o filenames 2>/dev/null
    return 0
}
complete -o nosort -F _mtmc mtmc
