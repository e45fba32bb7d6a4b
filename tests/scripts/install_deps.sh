#!/usr/bin/env bash
# scripts/install-deps with a pretended package manager: what it asks for, and how it refuses.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
script=$SOURCE_DIR/scripts/install-deps
bin=$work/bin
mkdir "$bin"
for tool in bash env tr sort mktemp rm tail; do ln -s "$(command -v $tool)" "$bin/$tool"; done

bad() {
  echo "install_deps: $*" >&2
  exit 1
}
# run EXPECTED_STATUS ARGUMENTS...: the output is left in $output.
run() {
  local want=$1 got=0
  shift
  output=$(PATH=$bin RIDGELINE_SKIP_DEPS=${skip:-} "$bin/bash" "$script" "$@" 2>&1) || got=$?
  [[ $got == "$want" ]] || bad "$*: exit $got, not $want: $output"
}
has() { [[ $output == *"$1"* ]] || bad "no '$1' in: $output"; }

run 1 --for demo
has "not a Debian-like system"
skip=1 run 0 --for demo
[[ -z $output ]] || bad "RIDGELINE_SKIP_DEPS=1 still said: $output"

# A dpkg that has everything but what $work/missing lists; an apt-get and sudo that write down their
# arguments.
cat >"$bin/dpkg-query" <<EOF
#!$bin/bash
while read -r package; do
  [[ \${!#} == "\$package" ]] && exit 1
done <"$work/missing"
printf 'ii '
EOF
cat >"$bin/apt-get" <<EOF
#!$bin/bash
echo "\$*" >>"$work/calls"
[[ ! -e "$work/no-network" ]]
EOF
cat >"$bin/sudo" <<EOF
#!$bin/bash
exec "\$@"
EOF
chmod +x "$bin"/{dpkg-query,apt-get,sudo}

: >"$work/missing"
run 0
[[ -z $output && ! -e $work/calls ]] || bad "something was installed though nothing is missing"

printf '%s\n' libhwy-dev libgtest-dev >"$work/missing"
run 0 --for test --dry-run
has "installing libgtest-dev libhwy-dev"
[[ ! -e $work/calls ]] || bad "--dry-run called apt-get"
run 0 --for demo
has "installing libhwy-dev"
[[ $output != *gtest* ]] || bad "the demo asks for a test library"
[[ $(wc -l <"$work/calls") == 1 && $(<"$work/calls") == *" install "*libhwy-dev ]] ||
  bad "unexpected calls: $(<"$work/calls")"

touch "$work/no-network"
run 1 --for demo
has "could not install"

run 1 --for nonsense
has "unknown group 'nonsense'"
run 1 --for
has "--for needs a group"
run 1 --nonsense
has "unknown argument '--nonsense'"

if ((EUID != 0)); then
  rm "$bin/sudo"
  run 1 --for demo
  has "neither root nor sudo"
fi
echo "install-deps behaves"
