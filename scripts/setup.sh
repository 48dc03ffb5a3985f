#!/usr/bin/env bash
# Brings a machine to the point where `make test` and `make demo` work, and says what it does. Running it again is
# safe and takes about a second. It installs system packages (as root on Debian; elsewhere it names them), lets Go
# fetch the toolchain of go.mod, builds the tokenizers library once, and installs the linter at a pinned version.
#
#   KVINDEX_CACHE  where the library and the linter are kept; default ${XDG_CACHE_HOME:-$HOME/.cache}/kvindex
#   CI=true        what is a warning on a developer's machine (no tokenizers library, no linter) is an error
set -euo pipefail

golangci_version=v2.15.0

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
export GOTOOLCHAIN=auto
PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
cache=${KVINDEX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvindex}

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$@" >&2; exit 1; }

# degrade says, so that nobody overlooks it, what does not work here; CI does not go on without it.
degrade() {
	{
		printf '\n*** setup: WARNING\n'
		printf '*** %s\n' "$@"
		printf '\n'
	} >&2
	if [ "${CI:-}" = true ]; then die "CI does not go on without it"; fi
}

# has_pyzmq looks at the system's Python first: the one in PATH may be a version manager's, without its packages.
# Tests compare the wire protocol with what pyzmq speaks.
has_pyzmq() {
	local python
	for python in /usr/bin/python3 python3; do
		if command -v "$python" >/dev/null &&
			"$python" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("zmq") is None)' 2>/dev/null; then
			return 0
		fi
	done
	return 1
}

# missing_items names what the build and the tests need of the system and this machine does not have.
missing_items() {
	command -v "${CC:-gcc}" >/dev/null || echo cc
	command -v "${CXX:-g++}" >/dev/null || echo cxx # for the tokenizers library
	command -v pkg-config >/dev/null || echo pkg-config
	pkg-config --exists libzmq 2>/dev/null || echo libzmq
	command -v redis-server >/dev/null || echo redis
	has_pyzmq || echo pyzmq
}

# package_names SYSTEM ITEM... prints the packages of a system that hold the items.
package_names() {
	local system=$1 item names=
	shift
	for item in "$@"; do
		case $system:$item in
		debian:cc) names="$names gcc libc6-dev" ;;
		debian:cxx) names="$names g++" ;;
		debian:pkg-config) names="$names pkg-config" ;;
		debian:libzmq) names="$names libzmq3-dev" ;;
		debian:redis) names="$names redis-server" ;;
		debian:pyzmq) names="$names python3-zmq" ;;
		fedora:cc) names="$names gcc" ;;
		fedora:cxx) names="$names gcc-c++" ;;
		fedora:pkg-config) names="$names pkgconf-pkg-config" ;;
		fedora:libzmq) names="$names zeromq-devel" ;;
		fedora:redis) names="$names redis" ;;
		fedora:pyzmq) names="$names python3-zmq" ;;
		arch:cc | arch:cxx) names="$names gcc" ;;
		arch:pkg-config) names="$names pkgconf" ;;
		arch:libzmq) names="$names zeromq" ;;
		arch:redis) names="$names valkey" ;;
		arch:pyzmq) names="$names python-pyzmq" ;;
		brew:pkg-config) names="$names pkgconf" ;;
		brew:libzmq) names="$names zeromq" ;;
		brew:redis) names="$names redis" ;;
		esac
	done
	# A package that holds two of the items is named once. The names are single words.
	# shellcheck disable=SC2086
	printf '%s\n' $names | awk '!seen[$0]++' | paste -s -d ' ' -
}

# macos_commands ITEM... prints how to get the items on macOS, where Homebrew holds not all of them.
macos_commands() {
	local names commands=
	names=$(package_names brew "$@")
	case " $* " in *" cc "* | *" cxx "*) commands="xcode-select --install" ;; esac
	if [ -n "$names" ]; then commands="$commands; brew install $names"; fi
	case " $* " in *" pyzmq "*) commands="$commands; python3 -m pip install pyzmq" ;; esac
	printf '%s' "${commands#; }"
}

# install_by_hand ITEM... says what to install where this script does not do it, and gives up.
install_by_hand() {
	{
		say "this machine lacks $*. Install what it takes, then run this again:"
		printf '  Debian, Ubuntu  sudo apt-get install %s\n' "$(package_names debian "$@")"
		printf '  Fedora          sudo dnf install %s\n' "$(package_names fedora "$@")"
		printf '  Arch            sudo pacman -S --needed %s\n' "$(package_names arch "$@")"
		printf '  macOS           %s\n' "$(macos_commands "$@")"
	} >&2
	exit 1
}

system_packages() {
	local missing
	missing=$(missing_items | paste -s -d ' ' -)
	if [ -z "$missing" ]; then
		say "system packages are there"
		return
	fi
	# The items are single words: splitting them is what is wanted.
	# shellcheck disable=SC2086
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		install_by_hand $missing
	else
		local names
		names=$(package_names debian $missing)
		say "installing $names"
		export DEBIAN_FRONTEND=noninteractive
		apt-get update -qq </dev/null || die "apt-get update failed, see above"
		apt-get install -y -qq --no-install-recommends $names </dev/null || die "apt-get could not install $names, see above"
		missing=$(missing_items | paste -s -d ' ' -)
		[ -z "$missing" ] || die "$names are installed, but this is still missing: $missing"
	fi
}

go_toolchain() {
	local have version
	have=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null) || have=
	case $have in
	'') die "there is no Go. Install 1.21 or later from your distribution or the Go project;" \
		"it fetches the version that go.mod asks for by itself" ;;
	go1.[0-9] | go1.[0-9].* | go1.1[0-9] | go1.1[0-9].* | go1.20 | go1.20.*)
		die "this is $have, and only Go 1.21 or later can fetch the version that go.mod asks for. Install a newer one" ;;
	esac
	version=$(go env GOVERSION) ||
		die "$have could not fetch the toolchain that go.mod asks for, see above." \
			"Install that version yourself or let Go reach its module proxy (see: go help environment, GOPROXY)"
	say "Go is $version"
}

tokenizers_library() {
	local status=0
	scripts/tokenizers-lib.sh || status=$?
	case $status in
	0) ;;
	3) degrade "there is no cargo, so the library of local Hugging Face tokenizers cannot be built." \
		"What is built here leaves them out (Go build tag nohf); all else works." \
		"To have them, install Rust 1.78 or later and run this again." ;;
	130) exit 130 ;;
	*) degrade "the library of local Hugging Face tokenizers could not be built, see above." \
		"What is built here leaves them out (Go build tag nohf); all else works." ;;
	esac
}

# linter installs golangci-lint. It can read no newer Go than the one that it was built with: the toolchain is a part
# of the folder's name.
linter() {
	local bin
	bin=$cache/golangci-lint/$golangci_version-$(go env GOVERSION)
	if [ ! -x "$bin/golangci-lint" ] && ! install_linter "$bin"; then
		degrade "golangci-lint $golangci_version could not be installed, see above. make check goes on without it."
		return
	fi
	mkdir -p build/bin
	ln -sfn "$bin/golangci-lint" build/bin/golangci-lint
	say "golangci-lint $golangci_version is at build/bin/golangci-lint"
}

# install_linter FOLDER compiles golangci-lint with the toolchain of go.mod and moves it to the folder when it is whole.
install_linter() {
	local bin=$1 start=$SECONDS status=0 toolchain
	toolchain=$(go env GOVERSION)
	say "installing golangci-lint $golangci_version, once: this takes 2 to 6 minutes"
	mkdir -p "$bin"
	work=$(mktemp -d "$bin/install.XXXXXX")
	(while sleep 10 >/dev/null 2>&1; do say "compiling, $((SECONDS - start)) s so far"; done) &
	ticker=$!
	GOBIN=$work GOTOOLCHAIN=$toolchain GOFLAGS='' go install \
		"github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$golangci_version" </dev/null >"$work/log" 2>&1 || status=$?
	if [ "$status" = 0 ]; then
		mv "$work/golangci-lint" "$bin/golangci-lint"
		say "installed in $((SECONDS - start)) s"
	else
		grep -v '^go: downloading ' "$work/log" >&2 || true
	fi
	cleanup
	return "$status"
}

# cleanup removes what install_linter leaves behind when it is done or interrupted.
work=
ticker=
cleanup() {
	if [ -n "$ticker" ]; then kill "$ticker" 2>/dev/null || true; fi
	if [ -n "$work" ]; then rm -rf "$work"; fi
	work=
	ticker=
}
trap cleanup EXIT

# test_tokenizers fetches the tokenizers of real models that tests compare with.
test_tokenizers() {
	scripts/test-tokenizers.sh || degrade "the tokenizers of real models could not be fetched, see above: tests that need them skip."
}

system_packages
go_toolchain
tokenizers_library
test_tokenizers
linter
say "done in $SECONDS s"
