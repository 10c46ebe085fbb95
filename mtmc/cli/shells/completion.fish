# Completion of mtmc for fish. Write it to a file that fish reads:
#   mtmc completion fish > ~/.config/fish/completions/mtmc.fish
complete -c mtmc -f -a '(mtmc completion _words (commandline -cp | string collect) 2>/dev/null)'
