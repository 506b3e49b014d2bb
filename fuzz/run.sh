#!/usr/bin/env bash
# Builds the fuzz targets and runs them one after the other, one worker each, until each has made RUNS executions.
#
#   fuzz/run.sh [RUNS [TARGET …]]     RUNS defaults to 5000, a smoke run; TARGET to all of them
#   SECONDS_MAX=600 fuzz/run.sh …     also stops each target after so many seconds
#
# Prints what each executed and what was executed since fuzz/target was last removed. Ends with 1 at a crash, and says
# how to see it again. Needs a C++ compiler and the stable toolchain: the counters that libFuzzer steers by are asked of
# LLVM directly. `cargo fuzz run TARGET --sanitizer none` works as well.
set -euo pipefail
cd "$(dirname "$0")"

runs=${1:-5000}
[[ $runs =~ ^[0-9]+$ ]] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
shift || true
all=($(sed -n 's/^name = "\(.*\)"$/\1/p' Cargo.toml | grep -v '^steadfast-fuzz$'))
targets=("${@:-${all[@]}}")
host=$(rustc -vV | sed -n 's/^host: //p')

coverage="-Cpasses=sancov-module"
for flag in level=4 inline-8bit-counters pc-table trace-compares; do
	coverage+=" -Cllvm-args=-sanitizer-coverage-$flag"
done
# With --target the flags reach no build script and no macro, which could not be linked with them.
printf '== building the fuzz targets\n'
RUSTFLAGS="$coverage -Ccodegen-units=1" cargo build --release --target "$host"

counts=target/counts.tsv
crashed=()
printf '== %-13s %12s %8s %10s\n' target executions seconds 'a second'
for target in "${targets[@]}"; do
	found=target/found/$target log=target/$target.log
	mkdir -p "$found" target/crashes
	seeds=("corpus/$target")
	[[ $target == image ]] && seeds+=(../tests/reference/scene/images)
	dictionary=()
	[[ -f dictionaries/$target ]] && dictionary=(-dict="dictionaries/$target")
	start=$(date +%s)
	"target/$host/release/$target" -runs="$runs" -max_total_time="${SECONDS_MAX:-0}" -max_len=4096 -timeout=20 \
		-rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="target/crashes/$target-" "${dictionary[@]}" \
		"$found" "${seeds[@]}" >"$log" 2>&1 || crashed+=("$target")
	seconds=$(($(date +%s) - start))
	# A run that crashed prints no statistics; its last line of progress counts.
	executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
	executed=${executed:-$(sed -n 's/^#\([0-9]*\)\t.*/\1/p' "$log" | tail -1)}
	printf '%s\t%s\t%s\n' "$target" "${executed:-0}" "$seconds" >>"$counts"
	printf '   %-13s %12d %8d %10d\n' "$target" "${executed:-0}" "$seconds" $((${executed:-0} / (seconds ? seconds : 1)))
done
printf '== since fuzz/target was last removed\n'
awk -F'\t' '{ n[$1] += $2; s[$1] += $3; all += $2; time += $3 }
	END { for (t in n) printf "   %-13s %12d %8d\n", t, n[t], s[t] | "sort"; close("sort")
		printf "   %-13s %12d %8d\n", "all", all, time }' "$counts"
for target in "${crashed[@]}"; do
	input=$(ls -t target/crashes/"$target"-* 2>/dev/null | head -1)
	printf 'crashed: %s; see fuzz/%s, and again with: fuzz/target/%s/release/%s fuzz/%s\n' \
		"$target" "target/$target.log" "$host" "$target" "$input" >&2
done
((${#crashed[@]} == 0))
