#!/usr/bin/env bash
# Measures recipectl against a real DFlash2 server whose acceptance is known, on one Hopper GPU without network.
# Needs Python 3.12, PyTorch 2.11 (CUDA 13), and vLLM 0.32.0 as archives in BUNDLES: core/c.so.xz, site/vllm.tar.xz and
# site/deps.tar.xz (or the same three files side by side).
#
#   tests/gpu/run_lab.sh BUNDLES OUT [k7] [experiment] [variants]      (all three without a part; about 9 minutes)
#
# OUT gets summary.txt and lab.tar.gz (receipts, results, engine logs), also when a step fails.
set -uo pipefail
bundles=$(cd "$1" && pwd); out=$(mkdir -p "$2" && cd "$2" && pwd); shift 2
parts=${*:-k7 experiment variants}
root=$(cd "$(dirname "$0")/../.." && pwd); cd "$root"
lab=${LAB_HOME:-$HOME/.cache/recipectl-lab}; site=$lab/site; engine=$lab/engine; work=$lab/work
mkdir -p "$work"; begun=$SECONDS

say() { echo "[$((SECONDS - begun)) s] $*" | tee -a "$out/summary.txt"; }

unpack() {
  [ -f "$site/.complete" ] && return
  mkdir -p "$site"
  find_one() { find "$bundles" -name "$1" | head -1; }
  xz -dc "$(find_one deps.tar.xz)" | tar -C "$site" -xf - & local deps=$!
  xz -dc "$(find_one vllm.tar.xz)" | tar -C "$site" -xf - & local vllm=$!
  xz -dc "$(find_one c.so.xz)" > "$site/c.so" & local core=$!
  wait $deps && wait $vllm && wait $core || { say "FAILED: the bundles do not unpack"; exit 1; }
  mv "$site/c.so" "$site/vllm/_C_stable_libtorch.abi3.so"
  touch "$site/.complete"
}

# An interpreter that has vLLM first and PyTorch's own environment behind it, also when asked with `python -I`.
interpreter() {
  local torch
  torch=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  python3 -m venv --without-pip "$engine"
  printf '%s\nimport site; site.addsitedir("%s")\n' "$site" "$torch" \
    > "$("$engine/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/lab.pth"
}

collect() {
  "$engine/bin/python" -m recipectl stop --all --force >> "$out/summary.txt" 2>&1
  find "$work/state" -name '*.gz' -path '*scrapes*' -delete 2> /dev/null
  tar -C "$work" -czf "$out/lab.tar.gz" state bench 2> /dev/null
  say "collected"
}

unpack; interpreter
export RECIPECTL_STATE=$work/state RECIPECTL_CACHE=$work/cache RECIPECTL_DATA=$work/data HOME=$work/home
export RECIPECTL_ENGINE_PYTHON=$engine/bin/python PYTHONPATH=$root PYTHONUNBUFFERED=1
mkdir -p "$HOME" "$work/bench"
recipectl() { "$engine/bin/python" -m recipectl "$@" 2>&1 | tee -a "$out/summary.txt"; return "${PIPESTATUS[0]}"; }
trap collect EXIT
nvidia-smi --query-gpu=name,driver_version,clocks.sm --format=csv,noheader | tee -a "$out/summary.txt"
say "unpacked: parts $parts"

if [[ $parts == *k7* ]]; then
  say "== serve K 7, synthetic acceptance of length 3.569"
  recipectl serve dflash2-lab --sm 90 && say "ready" \
    && recipectl bench dflash2-lab --sm 90 --phases calibration --out "$work/bench/calibration" && say "benched" \
    && recipectl bench dflash2-lab --sm 90 --phases calibration-speed --concurrency 1 --max-tokens 1024 --rounds 3 --out "$work/bench/c1"
  say "calibration exit code $?"
  "$engine/bin/python" tests/gpu/check_lab.py "$work/bench/calibration" "$work/bench/c1" 2>&1 | tee -a "$out/summary.txt"
  recipectl stop dflash2-lab
fi
if [[ $parts == *experiment* ]]; then
  say "== experiment: K 5 against K 7"
  recipectl experiment recipes/dflash2-lab/k5-against-k7.yaml
  say "experiment exit code $?"
fi
if [[ $parts == *variants* ]]; then
  for variant in no-spec eager; do
    say "== variant $variant"
    recipectl serve dflash2-lab --sm 90 --variant $variant \
      && recipectl bench dflash2-lab --sm 90 --phases calibration-speed --concurrency 1,4 --rounds 3 --out "$work/bench/$variant"
    say "$variant exit code $?"
    recipectl stop dflash2-lab
  done
fi
say "done"
