#!/usr/bin/env bash
# Puts the static library of github.com/daulet/tokenizers at build/lib/libtokenizers.a, where package tokenizer/hf
# links it. The Go module holds the Rust source but no library, so it is built here once per version and platform
# (2 to 5 minutes on two cores) and kept outside the clone:
#
#   ${KVINDEX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvindex}/tokenizers/<version>-<os>-<arch>/libtokenizers.a
#
# Exit status: 0 the library is in place; 3 there is no cargo; anything else: it could not be built.
set -euo pipefail

# The version is the one in go.mod. A later one needs a git fork of a crate that registries do not serve. The sum is
# the module's line in the Go checksum database, so that the source that gets compiled is the one that was reviewed.
version=v1.22.2
sum='h1:Md/N+hwnhZfYFWocGJjrnPVgB+CivTZcCmroLixKHtI='

root=$(cd "$(dirname "$0")/.." && pwd)
export GOTOOLCHAIN=auto
PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin

say() { printf 'tokenizers-lib: %s\n' "$*"; }
die() { say "$@" >&2; exit 1; }

platform=$(cd "$root" && go env GOOS GOARCH | paste -s -d - -)
cache=${KVINDEX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvindex}/tokenizers/$version-$platform
lib=$cache/libtokenizers.a
dest=$root/build/lib/libtokenizers.a

required=$(sed -n 's|^[[:space:]]*\(require \)\{0,1\}github.com/daulet/tokenizers \(v[^ ]*\).*|\2|p' "$root/go.mod")
[ -z "$required" ] || [ "$required" = "$version" ] ||
	die "go.mod requires github.com/daulet/tokenizers $required, and this script builds $version: change both together"

work=
ticker=
cleanup() {
	if [ -n "$ticker" ]; then kill "$ticker" 2>/dev/null || true; fi
	if [ -n "$work" ]; then rm -rf "$work"; fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

# module_field NAME reads one string field of what `go mod download -json` printed.
module_field() { sed -n "s/^[[:space:]]*\"$1\": \"\(.*\)\",\{0,1\}\$/\1/p" "$work/module.json"; }

# start_ticker prints a line every 10 s: cargo says nothing while it compiles its last, largest crate. Neither the
# ticker nor its sleep keeps the lock (descriptor 9), and the sleep does not keep a reader of our output waiting.
start_ticker() {
	local start=$SECONDS
	(while sleep 10 >/dev/null 2>&1; do say "compiling, $((SECONDS - start)) s so far"; done) 9>&- &
	ticker=$!
}

build() {
	local start=$SECONDS source
	work=$(mktemp -d "$cache/build.XXXXXX")
	# Outside the clone, so that go.mod and go.sum stay as they are.
	(cd "$work" && go mod download -json "github.com/daulet/tokenizers@$version") >"$work/module.json" ||
		die "cannot download github.com/daulet/tokenizers@$version: $(module_field Error)"
	[ "$(module_field Sum)" = "$sum" ] ||
		die "github.com/daulet/tokenizers@$version has the checksum '$(module_field Sum)', expected '$sum'"
	source=$(module_field Dir)
	cp -R "$source" "$work/source" # the module cache is read-only
	chmod -R u+w "$work/source"

	say "building $version for $platform with $(cargo --version), once: this takes 2 to 5 minutes"
	start_ticker
	(cd "$work/source" && env -u CARGO_BUILD_TARGET cargo build --release --locked --target-dir "$work/target" </dev/null 9>&-) ||
		die "cargo could not build the library, see above. Its crates must be reachable and cargo be 1.78 or later"
	kill "$ticker" 2>/dev/null || true
	ticker=
	[ -s "$work/target/release/libtokenizers.a" ] || die "cargo made no $work/target/release/libtokenizers.a"
	mv "$work/target/release/libtokenizers.a" "$lib" # same file system: whole or not at all
	say "built in $((SECONDS - start)) s: $lib"
}

if [ ! -s "$lib" ]; then
	command -v cargo >/dev/null || exit 3
	mkdir -p "$cache"
	if command -v flock >/dev/null; then
		exec 9>"$cache/lock"
		if ! flock -n 9; then
			say "another run builds the library, waiting for it"
			until flock -w 10 9; do say "still waiting"; done
		fi
	fi
	[ -s "$lib" ] || build
	exec 9>&-
fi

if ! cmp -s "$lib" "$dest"; then
	mkdir -p "$(dirname "$dest")"
	cp "$lib" "$dest.$$"
	mv "$dest.$$" "$dest"
fi
say "$version for $platform is at build/lib/libtokenizers.a"
