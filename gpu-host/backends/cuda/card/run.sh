#!/bin/bash
# Checks and measures the backend on a card with one command: run.sh OUT [--full] [--emulate] [--pack FOLDER]
#
# Builds the harness, or unpacks the one in the pack. Checks the engine against the reference and runs the C++ tests. A pack with Node adds the
# backend's own tests and the measurement of the platform's tax. Then measures the engine beside the card's limits and PyTorch, and prints the table
# of targets last. Each step has a time limit; later steps run even if one fails. The script takes four minutes, or nine with --full;
# PIE_CARD_SECONDS sets another total. See README.md.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
native=$here/../native
root=$here/../../../..
# Prints a hash of the sources. The script uses only programs that were built from the same sources.
sources() { (cd "$native" && find kernels engine harness device addon testing -type f | LC_ALL=C sort | xargs cat | sha256sum | cut -d ' ' -f 1); }

out=
mode=quick
emulate=
pack=
while [ $# -gt 0 ]; do
  case $1 in
    --full) mode=full ;;
    --emulate) emulate=1 ;;
    --pack) pack=$(cd "$2" && pwd) || exit 2; shift ;;
    --sources) sources; exit ;;
    --help|-h) echo "usage: run.sh OUT [--full] [--emulate] [--pack FOLDER]"; exit ;;
    -*) echo "run.sh: $1 is not understood" >&2; exit 2 ;;
    *) out=$1 ;;
  esac
  shift
done
[ -n "$out" ] || { echo "usage: run.sh OUT [--full] [--emulate] [--pack FOLDER]" >&2; exit 2; }
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
# Emulated programs get a folder of their own, so that no run on a card picks them up.
work=${PIE_CARD_WORK:-${TMPDIR:-/tmp}/pie-card-$(id -u)}${emulate:+-emulated}
mkdir -p "$work"
log=$out/log.txt
: >"$log"
failed=0
python=${PYTHON:-python3}

# step NAME SECONDS COMMAND…: writes all output to the log, and prints its last lines if the command fails.
step() {
  local name=$1 seconds=$2 began=$SECONDS code text
  shift 2
  text=$work/step.txt
  timeout --kill-after=5 "$seconds" "$@" >"$text" 2>&1
  code=$?
  { echo "=== $name: exit $code after $((SECONDS - began)) s"; cat "$text"; } >>"$log"
  if [ $code -eq 0 ]; then
    echo "[$SECONDS s] $name: ok, $((SECONDS - began)) s"
  else
    failed=1
    echo "[$SECONDS s] $name: FAILED (exit $code$([ $code -eq 124 ] && echo ', out of time')), $((SECONDS - began)) s"
    tail -n 15 "$text" | sed 's/^/    /'
  fi
  return $code
}

# beside NAME SECONDS COMMAND…: runs a step in the background until `wait`. Only for checks, because parallel steps disturb measurements.
beside() {
  local name=$1 seconds=$2
  shift 2
  (
    text=$work/beside-${name//[^a-z0-9]/-}.txt
    timeout --kill-after=5 "$seconds" "$@" >"$text" 2>&1
    code=$?
    { echo "=== $name: exit $code"; cat "$text"; } >>"$log"
    echo "[$SECONDS s] $name: $([ $code -eq 0 ] && echo ok || echo "FAILED (exit $code)")"
    [ $code -eq 0 ] || { tail -n 15 "$text" | sed 's/^/    /'; touch "$work/failed-beside"; }
  ) &
}

# compile SOURCE: compiles the source to an object file, unless the file exists already.
compile() {
  local object=$work/objects/$(echo "${1#"$native"/}" | tr / _).o
  [ -e "$object" ] && return
  nvcc -x cu -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 -Xcompiler -fPIC -c "$1" -o "$object.part" && mv "$object.part" "$object"
}

# build NAME SOURCE…: compiles the sources, one compiler per processor at a time, and links them.
build() {
  local name=$1 linked=()
  shift
  mkdir -p "$work/objects"
  printf '%s\0' "$@" | xargs -0 -P "$(nproc)" -I{} bash -c 'compile "$1"' bash {} || return 1
  for source in "$@"; do linked+=("$work/objects/$(echo "${source#"$native"/}" | tr / _).o"); done
  nvcc -gencode=arch=compute_90a,code=sm_90a -cudart static "${linked[@]}" -o "$work/$name" -ldl -lpthread
}
export -f build compile
export native work

# unpack ARCHIVE FOLDER: uses Python, because some machines lack xz.
unpack() {
  mkdir -p "$2" &&
    "$python" -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2], **({"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}))' "$1" "$2"
}
export -f unpack
export python

# answers HARNESS: succeeds if the harness finds the card. A harness built for a newer CUDA than the driver supports starts, but finds no card.
answers() { echo device | "$1" bench 2>>"$log" | tee -a "$log" | grep -q '"multiprocessors"'; }

product() { find "$native/kernels" "$native/engine" -name '*.cu' -o -name '*.cc' | grep -v '\.test\.' | sort; }

harness=$work/cuda-harness
tests=$work/cuda-tests
peer=(--peer "$python")
size=()
if [ "$mode" = full ]; then size+=(--full); fi

if [ -n "$emulate" ]; then
  node=${NODE:-$root/node_modules/.bin/node}
  peer=(--no-peer)
  size+=(--toy)
  step 'build, emulated' 600 "$node" "$here/../build.ts" --harness --emulate --out "$harness" || exit 1
  tests=
else
  { date -u; nvidia-smi; nvcc --version; "$python" -c 'import torch; print(torch.__version__)'; } >>"$log" 2>&1
  now=$(sources)
  # Keep the work of an earlier run only if the sources have not changed.
  [ "$(cat "$work/sources" 2>/dev/null)" = "$now" ] || rm -rf "$work/objects" "$work/fixtures" "$work/programs" "$harness" "$tests"
  echo "$now" >"$work/sources"
  if [ -n "$pack" ] && [ "$(cat "$pack/sources" 2>/dev/null)" = "$now" ] && unpack "$pack/programs.tar.xz" "$work/programs" &&
    { answers "$work/programs/cuda-harness" || ! rm -rf "$work/programs"; }; then
    echo "[$SECONDS s] the pack's programs run here"
    harness=$work/programs/cuda-harness
    tests=$work/programs/cuda-tests
  elif [ ! -x "$harness" ]; then
    mapfile -t files < <(product; find "$native/harness" -name '*.cu' ! -name '*.test.*')
    step 'build of the harness' 240 bash -c 'build cuda-harness "$@"' bash "${files[@]}" || exit 1
  fi
  # PyTorch includes cuBLASLt; without PyTorch the loader may find it in the toolkit.
  if [ -z "${PIE_CUBLASLT:-}" ]; then
    packages=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["platlib"])' 2>/dev/null)
    PIE_CUBLASLT=$(ls "$packages"/nvidia/*/lib/libcublasLt.so.* 2>/dev/null | head -n 1)
    [ -n "$PIE_CUBLASLT" ] || PIE_CUBLASLT=$(ls /usr/local/cuda*/lib64/libcublasLt.so.1[2-9] 2>/dev/null | head -n 1)
    [ -n "$PIE_CUBLASLT" ] && export PIE_CUBLASLT
  fi
  echo "cuBLASLt: ${PIE_CUBLASLT:-not found}" | tee -a "$log"
fi

# Fixtures come from the pack. An emulated run writes small ones itself; it has Node.
fixtures=$work/fixtures
if [ -n "$emulate" ]; then
  step 'fixtures' 120 "$node" "$here/fixtures.ts" "$fixtures" --small
elif [ -n "$pack" ] && [ -e "$pack/fixtures.tar.xz" ]; then
  step 'fixtures' 60 bash -c 'unpack "$@"' bash "$pack/fixtures.tar.xz" "$fixtures"
fi
if [ -d "$fixtures" ]; then
  step 'check against the reference' 90 "$harness" check "$fixtures" --json "$out/check.json"
  tail -n 40 "$work/step.txt" | grep -v ' s$'
  step 'check with keys and values in fp8' 90 "$harness" check "$fixtures" --kv fp8
  tail -n 12 "$work/step.txt" | grep -v ' s$'
fi

if [ -n "$tests" ]; then
  if [ ! -x "$tests" ] && [ "$mode" = full ]; then
    mapfile -t files < <(
      product
      find "$native/device" "$native/kernels" "$native/engine" "$native/harness" -name '*.test.c[uc]'
      echo "$native/testing/main.cc"
    )
    step 'build of the tests' 240 bash -c 'build cuda-tests "$@"' bash "${files[@]}"
  fi
  rm -f "$work/failed-beside"
  # If the check above failed, the checks without one feature each show which feature is at fault. The sanitizers of --full take a minute.
  if [ -d "$fixtures" ]; then
    for feature in dependent graphs cublas shared; do beside "check without $feature" 90 "$harness" check "$fixtures" "--no-$feature"; done
  fi
  [ -x "$tests" ] && beside 'C++ tests' 90 "$tests"
  if [ "$mode" = full ] && [ -x "$tests" ] && command -v compute-sanitizer >/dev/null; then
    for part in 0 1; do beside "memcheck, part $part" 120 compute-sanitizer --error-exitcode 9 --tool memcheck "$tests" --announce --part=$part/2; done
    for names in 'attention: bf16' linear.test.cc low-rank.test.cc rows.test.cc; do
      for tool in racecheck synccheck; do beside "$tool, $names" 90 compute-sanitizer --error-exitcode 9 --tool $tool "$tests" --announce "$names"; done
    done
  fi
  wait
  [ -e "$work/failed-beside" ] && failed=1
fi

# Link the pack's Node and packages into this tree, unless the tree has its own.
with_node=(env "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}${LD_LIBRARY_PATH:+:}$work/node/lib"
  "PATH=$work/redis:$work/node/node_modules/node/bin:$PATH" "PIE_CUDA_ADDON=$work/programs/pie-cuda.node")
if [ -n "$pack" ] && [ -e "$pack/node.tar.xz" ] && step 'unpack Node' 60 bash -c 'unpack "$@"' bash "$pack/node.tar.xz" "$work/node"; then
  [ -e "$root/node_modules" ] || ln -s "$work/node/node_modules" "$root/node_modules"
  cd "$root" || exit 1
  [ -e "$work/programs/pie-cuda.node" ] ||
    step 'build of the addon' 240 "${with_node[@]}" node gpu-host/backends/cuda/build.ts --out "$work/programs/pie-cuda.node"
  step 'backend tests in Node' 120 "${with_node[@]}" node --test --test-name-pattern=cuda \
    gpu-host/backends/cuda/parity.test.ts gpu-host/backends/cuda/conformance.test.ts
  grep -E '^(#|ℹ) (tests|pass|fail) ' "$work/step.txt"
fi
taxed=
[ "$mode" = full ] && [ -n "$pack" ] && [ -e "$pack/redis.tar.xz" ] && [ -d "$work/node" ] && taxed=1

# Measure for the time that is left, less the time that the platform's tax needs.
total=${PIE_CARD_SECONDS:-$([ "$mode" = full ] && echo 540 || echo 240)}
reserve=5
[ -n "$taxed" ] && reserve=120
seconds=$((total - SECONDS - reserve))
[ "$seconds" -gt 30 ] || seconds=30
step 'measurements' $((seconds + 30)) "$python" "$here/bench.py" --harness "$harness" --out "$out" --seconds "$seconds" "${peer[@]}" "${size[@]}"
cp "$work/step.txt" "$work/bench.txt"

if [ -n "$taxed" ] && unpack "$pack/redis.tar.xz" "$work/redis"; then
  # The measurement writes 16 GB of weights; a file system in memory is fastest.
  [ "$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1)" -gt 24000000 ] 2>/dev/null && export TMPDIR=/dev/shm
  step "the platform's tax" 240 "${with_node[@]}" node gpu-host/backends/cuda/card/platform-tax.ts --harness "$harness" \
    --component "$work/node/decode.wasm" --json "$out/tax.json"
  tail -n 5 "$work/step.txt"
fi

echo
grep -v '^\[' "$work/bench.txt"
echo "[$SECONDS s] done; everything is in $out"
exit $failed
