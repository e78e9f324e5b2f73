#!/bin/sh
# What proves the CUDA driver, on a machine with an NVIDIA GPU, from the programs that
# pack-checks.sh built. One line for each check; logs and summary.txt go to OUT.
#
#   FOLDER/device-checks.sh [OUT] [CHECK..]
#
# Checks, all of them without names: table, forced-table, models, forced-models, programs,
# faults, memcheck, racecheck, initcheck, synccheck. To be run where models/nano is.
#
#   PTX       architectures whose portable code is forced (75 80 86 89)
#   LIMIT     seconds for one run (300)
#   RACES     cases of the table that racecheck looks at, by parts of names: it is slow
#   CASES     the same for the other tools of compute-sanitizer
#   MEMCHECK  more options for memcheck, such as "--report-api-errors no"
set -u

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-checks}
[ $# -gt 0 ] && shift
checks=${*:-table forced-table models forced-models programs faults memcheck initcheck synccheck racecheck}
ptx=${PTX-75 80 86 89}
limit=${LIMIT:-300}
# The kernels where threads share memory, at sizes that take seconds.
races=${RACES:-rms_norm/m=15,gated_norm/m=15,top_k/ties,tree_build/b=7,tree_walk/m=8,kv_commit,conv_commit,delta_commit,gated_delta/m=15,gated_delta/tree/Random,attention/tree/every,linear/edges/Q4_K,linear/logit}
cases=${CASES:-$races,rope,embed,feature,swiglu,output_gate,attention/block,linear/edges,linear/parts}
model=models/nano/nano-code-Q4_K_M.gguf
draft=models/nano/nano-dflash-Q8_0.gguf
mkdir -p "$out"
: >"$out/summary.txt"
failed=0
# Settings of the next check.
with=

# say NAME RC SECONDS WORDS: one line, on the terminal and in the summary.
say() {
  words=ok
  [ "$2" = 0 ] || { words=FAILED; failed=$((failed + 1)); }
  [ "$2" = 124 ] && words="TIME OUT"
  printf '%-28s %-8s %6.1f s  %s\n' "$1" "$words" "$3" "$4" | tee -a "$out/summary.txt"
}

now() { date +%s.%N; }
since() { echo "$(now) $1" | awk '{ print $1 - $2 }'; }

# check NAME COMMAND..: a program that exits with 0 when all is well.
check() {
  name=$1; shift
  start=$(now)
  # shellcheck disable=SC2086 # settings have no spaces
  env $with timeout "$limit" "$@" >"$out/$name.log" 2>&1
  rc=$?
  line=$(grep -hE '^test result|ERROR SUMMARY|RACECHECK SUMMARY' "$out/$name.log" | tail -1)
  # Nothing ran: that is no pass.
  if [ $rc = 0 ] && grep -q '^skipped: .*\(CUDA\|device\)' "$out/$name.log"; then
    rc=1
    line=$(grep -m1 '^skipped: ' "$out/$name.log")
  fi
  say "$name" $rc "$(since "$start")" "$line"
}

# fault NAME WORDS COMMAND..: exit code 1 and one line of stderr, with these words.
fault() {
  name=$1 words=$2; shift 2
  start=$(now)
  timeout 60 "$@" >"$out/$name.out" 2>"$out/$name.log"
  rc=$?
  line=$(tail -1 "$out/$name.log")
  good=1
  [ $rc = 1 ] && [ "$(grep -c '' "$out/$name.log")" = 1 ] && good=0
  case $line in "error: "*"$words"*) ;; *) good=1 ;; esac
  [ $rc = 124 ] && good=124
  say "$name" $good "$(since "$start")" "$line"
}

test_program() { # NAME PROGRAM ARGUMENT..
  name=$1 program=$2; shift 2
  check "$name" "$here/$program" --test-threads=1 --show-output "$@"
}

sanitizer() { # TOOL CASES
  tool=$1 more=
  [ "$tool" = memcheck ] && more=${MEMCHECK:-}
  base="compute-sanitizer --tool $tool --error-exitcode 9 --print-limit 5 $more"
  with=FORETOKEN_TEST_CASES=$2
  # shellcheck disable=SC2086 # words
  check "$tool-table" $base "$here/op_table" --test-threads=1 --show-output the_device
  with=
  # shellcheck disable=SC2086
  check "$tool-generate" $base "$here/foretoken" generate -m $model --draft $draft \
    --device cuda:0 -c 512 -n 8 --spec tree "def f("
}

unset FORETOKEN_FORCE_PTX FORETOKEN_TEST_CASES
for what in $checks; do
  with=
  case $what in
    table)
      # In this mode the numbers of parameters are held against the code, too.
      with=FORETOKEN_CUDA_SYNC=1
      test_program table-one-by-one op_table the_device
      with=
      test_program table op_table the_device ;;
    forced-table)
      for arch in $ptx; do
        with=FORETOKEN_FORCE_PTX=$arch
        test_program "table-ptx-$arch" op_table portable
      done ;;
    models) test_program models models ;;
    forced-models)
      for arch in $ptx; do
        with=FORETOKEN_FORCE_PTX=$arch
        test_program "models-ptx-$arch" models
      done ;;
    programs)
      test_program driver driver
      test_program operations operations ;;
    faults)
      f="$here/foretoken generate -m $model --device cuda:0 -c 512 -n 40 x"
      # shellcheck disable=SC2086
      {
        fault fault-no-device "cuda:0" env CUDA_VISIBLE_DEVICES= $f
        fault fault-no-code "no cuda kernels" env FORETOKEN_FORCE_PTX=61 $f
        fault fault-memory-at-load "free" $f --device-memory 8MiB
        fault fault-killed "CUDA_ERROR_ILLEGAL_ADDRESS" \
          env LD_LIBRARY_PATH="$here/failing" FAIL_WAIT=${FAIL_WAIT:-400} $f
      } ;;
    memcheck | initcheck | synccheck) sanitizer "$what" "$cases" ;;
    racecheck) sanitizer racecheck "$races" ;;
    *) echo "error: no check is called $what" >&2; exit 2 ;;
  esac
done
echo "$failed checks failed" | tee -a "$out/summary.txt"
[ $failed = 0 ]
