# Checks that run no test: formatting, lints of Rust and of shell scripts, style, and the oldest
# supported compiler. For tools/test.
# shellcheck shell=bash disable=SC2154

check_formatting() {
    say "formatting"
    cargo fmt --all --check
}

check_lints() {
    say "lints"
    cargo clippy --workspace --all-targets --locked -- --deny warnings
}

# Lints the workflows of GitHub, where there is actionlint.
check_workflows() {
    command -v actionlint >/dev/null || { skip "lints of workflows: actionlint is missing"; return 0; }
    say "workflows"
    actionlint
}

# Prints remarks on style, which never fail.
show_style() {
    say "style"
    cargo run --quiet --package xwarp-house-tests --bin style --locked
}

# Lints every shell script of the tree. Left out: intended loops over words (SC2013); expressions
# for another program in single quotes (SC2016); cd without || exit, as every script runs under set
# -e (SC2164).
check_scripts() {
    local scripts
    say "shell scripts"
    mapfile -t scripts < <(grep -rlIE '^(#!/.*sh$|# shellcheck shell=)' --exclude-dir=target --exclude-dir=.git "$top")
    shellcheck --external-sources --source-path=SCRIPTDIR --exclude=SC2013,SC2016,SC2164 "${scripts[@]}"
}

# Compiles the workspace with the oldest compiler that Cargo.toml promises. Installs it with rustup
# if it is missing. Returns 77 and prints a reason if it is not available.
check_oldest_compiler() {
    local version
    version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$top/Cargo.toml")
    say "Rust $version"
    need_toolchain "$version" || return 77
    cargo "+$version" check --workspace --locked
}
