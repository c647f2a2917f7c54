#!/bin/bash
# The program as people run it, on a small real model: exit codes, streams, JSON that other programs read.
#   cli_test.sh BUILD_DIR
set -u
plait="${1:?build folder}/plait"
shared="${PLAIT_SHARED:-../shared}"
model="$shared/data/models/stories260K/stories260K.gguf"
big="$shared/data/configs/Llama-3.1-405B.json"
if [ ! -x "$plait" ] || [ ! -f "$model" ]; then
  echo "skipped: needs $plait and $model"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# check NAME WANTED_CODE COMMAND...: stdout and stderr land in $work/out and $work/err
check() {
  local name=$1 wanted=$2
  shift 2
  timeout 120 "$@" >"$work/out" 2>"$work/err" </dev/null
  local got=$?
  if [ "$got" != "$wanted" ]; then
    echo "FAILED $name: exit code $got, want $wanted; stderr: $(head -c 400 "$work/err")"
    failures=$((failures + 1))
    return 1
  fi
}
# says TEXT: the last stderr holds it
says() {
  grep -qF -- "$1" "$work/err" || {
    echo "FAILED: stderr lacks '$1': $(head -c 400 "$work/err")"
    failures=$((failures + 1))
  }
}
# json CONDITION: a Python expression over the last stdout, j
json() {
  python3 - "$work/out" "$1" <<'PY' || failures=$((failures + 1))
import json, sys
text = open(sys.argv[1], encoding="utf-8").read()
try:
    j = json.loads(text)
    ok = eval(sys.argv[2])
except Exception as e:
    print("FAILED json", sys.argv[2], repr(e), text[:300]); sys.exit(1)
if not ok:
    print("FAILED json", sys.argv[2], "in", text[:600]); sys.exit(1)
PY
}

# generate: the published greedy text of stories260K, its fields, memory as explain says
story="Once upon a time, there was a little girl named Lily. She loved to play outside in the park."
for tp in 1 3; do
  check "generate -tp $tp" 0 "$plait" generate "$model" -tp $tp -p "Once upon a time" -n 60 --json
  cp "$work/out" "$work/generated.$tp"
  json "('Once upon a time' + j['text']).startswith('''$story''')"
  json "set(j) >= {'tokens','prompt_tokens','text','finish_reason','plan','timings','ranks'}"
  json "set(j['timings']) >= {'load_s','prefill_tokens_per_s','decode_tokens_per_s','first_token_s'}"
  json "all(set(r) >= {'coords','weights_bytes','kv_bytes','arena_bytes','compute_s','comm_s','wait_s'} for r in j['ranks'])"
  json "len(j['ranks']) == $tp and len(j['tokens']) == 60 and j['finish_reason'] == 'length'"
  check "explain -tp $tp" 0 "$plait" explain "$model" -tp $tp --json
  cp "$work/out" "$work/explained"
  cp "$work/generated.$tp" "$work/out"
  json "all(abs(a[k] - b[k]) <= 0.01 * b[k] for b, a in zip(json.load(open('$work/explained'))['ranks'], j['ranks'])
        for k in ('weights_bytes', 'kv_bytes', 'arena_bytes', 'comm_bytes'))"
done
json "j['tokens'] == json.load(open('$work/generated.1'))['tokens']"
# Nothing as a prompt is BOS alone, and the text begins there: without SentencePiece's first space (PublicReports S-63).
check "generate -p ''" 0 "$plait" generate "$model" -p "" -n 60 --json
json "j['prompt_tokens'] == 1 and j['text'].startswith('''$story''')"
check "generate -p ' '" 0 "$plait" generate "$model" -p " " -n 8 --json
check "generate -p -tp" 0 "$plait" generate "$model" -p -tp -n 8 --json
json "len(j['ranks']) == 1"
check "text on stdout, figures on stderr" 0 "$plait" generate "$model" -p "Once upon a time" -n 60
grep -qF "there was a little girl named Lily" "$work/out" || { echo "FAILED: no text"; failures=$((failures + 1)); }
says "tokens/s"
printf 'Once upon a time' >"$work/prompt"
check "prompt from a file" 0 "$plait" generate "$model" --file "$work/prompt" -n 5 --json
json "j['prompt_tokens'] == 5 and len(j['tokens']) == 5"
"$plait" generate "$model" -n 5 --json <"$work/prompt" >"$work/out" 2>/dev/null
json "j['prompt_tokens'] == 5"
check "two prompts" 2 "$plait" generate "$model" -p x --file "$work/prompt"
check "no template" 4 "$plait" generate "$model" --chat -p hi && says "chat template"
check "system without chat" 2 "$plait" generate "$model" --system x -p hi && says "--chat"
check "temperature below 0" 2 "$plait" generate "$model" -p hi --temp -1
check "no tokens" 2 "$plait" generate "$model" -p hi -n 0
check "prompt beyond the context" 3 "$plait" generate "$model" -c 16 -p "$(printf 'word %.0s' $(seq 40))"
check "cap" 3 "$plait" generate "$model" -c 2048 --max-rank-memory 3MiB -p hi && says "smallest degree that fits"
check "no such file" 4 "$plait" generate "$work/none.gguf" -p hi
head -c 100000 "$model" >"$work/cut.gguf"
check "truncated file" 4 "$plait" generate "$work/cut.gguf" -p hi && says "cut.gguf"
check "not a model" 4 "$plait" generate "$work/prompt" -p hi

# generate --prompts: JSON lines in, JSON lines out, each the text that it is alone
cat >"$work/prompts" <<'LINES'
{"id": "a", "prompt": "Once upon a time", "max_tokens": 60}
{"id": 7, "prompt": "The dog", "max_tokens": 5, "temperature": 0.8, "seed": 3}

{"prompt": "Once upon a time", "max_tokens": 60, "stop": ["named Lily", "never"]}
{"prompt": "", "stop": "zzzz"}
LINES
check "generate -p, drawn" 0 "$plait" generate "$model" -p "The dog" -n 5 --temp 0.8 --seed 3 --json
cp "$work/out" "$work/drawn"
for how in "-tp 1 --max-num-seqs 2" "-tp 2 --ranks process" "-tp 3 --max-num-seqs 1"; do
  check "generate --prompts $how" 0 "$plait" generate "$model" --prompts "$work/prompts" -n 9 $how
  says "tokens/s"
  cp "$work/out" "$work/lines"
  python3 -c 'import json, sys; print(json.dumps([json.loads(l) for l in open(sys.argv[1])]))' "$work/lines" >"$work/out"
  json "[l['index'] for l in j] == [0, 1, 2, 3] and [l.get('id') for l in j] == ['a', 7, None, None]"
  json "j[0]['tokens'] == json.load(open('$work/generated.1'))['tokens'] and j[0]['finish_reason'] == 'length'"
  json "j[0]['text'] == json.load(open('$work/generated.1'))['text'] and j[0]['prompt_tokens'] == 5"
  json "j[1]['tokens'] == json.load(open('$work/drawn'))['tokens'] and j[1]['completion_tokens'] == 5"
  json "j[2]['text'] == j[0]['text'].split('named Lily')[0] and j[2]['finish_reason'] == 'stop'"
  json "j[2]['completion_tokens'] < 60 and j[3]['completion_tokens'] == 9 and j[3]['prompt_tokens'] == 1"
done
"$plait" generate "$model" --prompts - -q <"$work/prompts" >"$work/out" 2>"$work/err"
cmp -s <(head -3 "$work/out") <(head -3 "$work/lines") && [ ! -s "$work/err" ] ||
  { echo "FAILED --prompts -"; failures=$((failures + 1)); }
check "--prompts and -p" 2 "$plait" generate "$model" --prompts "$work/prompts" -p x && says "leave them out"
check "--max-num-seqs 0" 2 "$plait" generate "$model" --prompts "$work/prompts" --max-num-seqs 0
printf '{"prompt": "x"}\n{"prompt": "%s"}\n' "$(printf 'word %.0s' $(seq 40))" >"$work/bad"
check "--prompts beyond -c" 3 "$plait" generate "$model" --prompts "$work/bad" -c 16 && says "prompt 2 of"
bad() { # bad WHAT WANTED_IN_MESSAGE LINE
  printf '{"prompt": "x"}\n%s\n' "$3" >"$work/bad"
  check "--prompts, $1" 4 "$plait" generate "$model" --prompts "$work/bad" && says "bad:2" && says "$2"
}
bad "no JSON" "bad:2" '{"prompt": "x"'
bad "a list" "want an object" '[1]'
bad "no prompt" 'got neither' '{"id": 1}'
bad "prompt and messages" 'got both' '{"prompt": "x", "messages": []}'
bad "another key" 'got the key "tokens"' '{"prompt": "x", "tokens": 4}'
bad "a prompt that is a number" 'prompt: got 5' '{"prompt": 5}'
bad "messages without a template" 'chat template' '{"messages": [{"role": "user", "content": "hi"}]}'
bad "max_tokens 0" 'max_tokens: got 0' '{"prompt": "x", "max_tokens": 0}'
bad "temperature below 0" '[temperature] got -1' '{"prompt": "x", "temperature": -1}'
bad "a stop that is empty" 'stop: got ""' '{"prompt": "x", "stop": ["a", ""]}'
: >"$work/bad"
check "--prompts, no lines" 4 "$plait" generate "$model" --prompts "$work/bad" && says "got no line"

# score: the same number under every layout
for i in $(seq 30); do echo "Once upon a time there was a dog number $i. It loved to play outside in the park."; done >"$work/text"
check score 0 "$plait" score "$model" "$work/text" --json
cp "$work/out" "$work/score.1"
json "j['bos'] and j['tokens'] > 500 and j['window'] == 2048 and j['stride'] == 1024 and j['windows'] == 1 and 2 < j['perplexity'] < 100"
json "abs(j['perplexity'] - 2.718281828459045 ** j['nats_per_token']) < 1e-6 and j['nats_per_token'] == j['nats'] / j['tokens']"
check "score, windows" 0 "$plait" score "$model" "$work/text" --window 100 --stride 50 --json
json "j['windows'] > 20 and j['tokens'] == json.load(open('$work/score.1'))['tokens'] < j['computed_tokens']"
check "score -tp 3" 0 "$plait" score "$model" "$work/text" -tp 3 --ranks process --json
json "j['nats'] == json.load(open('$work/score.1'))['nats'] and j['tokens'] == json.load(open('$work/score.1'))['tokens']"
check "score, text" 0 "$plait" score "$model" "$work/text" --window 64 --stride 32 -n 100 -q
grep -qF "100 tokens in" "$work/out" && [ ! -s "$work/err" ] || { echo "FAILED score text"; failures=$((failures + 1)); }
check "score, stride over window" 2 "$plait" score "$model" "$work/text" --window 64 --stride 65 && says "stride of 65"
check "score, window over the model" 2 "$plait" score "$model" "$work/text" --window 100000
check "score, no text" 4 "$plait" score "$model" "$work/none" && says "none"

# tokenize: there and back
check tokenize 0 "$plait" tokenize "$model" "Once upon a time" --json
json "j['ids'] == [1, 403, 407, 261, 378] and j['count'] == 5 and [t['id'] for t in j['tokens']] == j['ids']"
check decode 0 "$plait" tokenize "$model" --decode 403 407,261 378
[ "$(cat "$work/out")" = "Once upon a time" ] || { echo "FAILED decode: $(cat "$work/out")"; failures=$((failures + 1)); }
check "id out of range" 2 "$plait" tokenize "$model" --decode 512 && says "512"
check "not an id" 2 "$plait" tokenize "$model" --decode x && says "'x'"

# training steps
for dtype in f32 bf16; do
  check "verify --train --dtype $dtype" 0 "$plait" verify --train "$model" -tp 2 -dp 2 --micro-batches 2 --steps 2 --dtype $dtype --json
  json "j['same'] and {'loss', 'gradient_norm', 'gradient', 'weight', 'moment'} == {v['kind'] for v in j['values']}"
  cp "$work/out" "$work/train.$dtype"
done
json "j['losses'] != json.load(open('$work/train.f32'))['losses']"  # bf16 is another number
check "verify --train --dtype f16" 2 "$plait" verify --train "$model" --dtype f16 && says "want f32, bf16 or f64"

# convert: there and back again, the same weights, words and logits
hash_of() { "$plait" verify "$1" -tp 2 -n 4 -p "Once upon a time" --json 2> /dev/null | python3 -c "import json, sys; print(json.load(sys.stdin)['logits_hash'])"; }
check "convert to a folder" 0 "$plait" convert "$model" -o "$work/folder"
check "convert to GGUF" 0 "$plait" convert "$work/folder" -o "$work/back.gguf"
check "convert to a folder again" 0 "$plait" convert "$work/back.gguf" -o "$work/again"
for file in tokenizer.json tokenizer_config.json generation_config.json model.safetensors; do
  check "$file is the same after two ways" 0 cmp "$work/folder/$file" "$work/again/$file"
done
want="$(hash_of "$model")"
for m in folder back.gguf again; do
  check "logits of $m" 0 [ -n "$want" -a "$(hash_of "$work/$m")" = "$want" ]
done
check "convert to blocks" 0 "$plait" convert "$work/folder" -o "$work/back.gguf" --dtype q4_k && says "instead of q4_k: their rows are no multiple of 256"
check "what was converted generates" 0 "$plait" generate "$work/back.gguf" -tp 2 -p "Once upon a time" -n 4
check "a folder that is there stays" 2 "$plait" convert "$model" -o "$work/folder" && says "is there already"
check "blocks in a folder" 2 "$plait" convert "$model" -o "$work/other" --dtype q8_0 && says "safetensors files hold f32, f16 and bf16"
check "an unknown type" 2 "$plait" convert "$model" -o "$work/other.gguf" --dtype q9
check "from folder to folder" 2 "$plait" convert "$work/folder" -o "$work/other"
check "convert to nowhere" 4 "$plait" convert "$model" -o "$work/nowhere/x.gguf" && says "cannot create"
check "nothing half written is left" 0 [ -z "$(find "$work" -name '*.part')" ]

# bench and doctor: shape and sense
check bench 0 "$plait" bench "$model" -tp 1,2 -t 1 --prompt-tokens 32 --gen-tokens 8 --repeat 1 --profile --json
json "[d['ranks'] for d in j['degrees']] == [1, 2]"
json "all(d['prefill_tokens_per_s'] > 0 and d['decode_tokens_per_s'] > 0 and d['read_bytes_per_s'] > 0 for d in j['degrees'])"
json "all(0.9 < sum(s.values()) < 1.1 for d in j['degrees'] for s in d['shares'].values())"
json "j['degrees'][0]['shares']['decode']['waiting'] == 0 and len(j['degrees'][1]['kernel_s']['decode_step']) == 2"
json "1 < j['degrees'][1]['speed_up']['decode_limit'] <= 2 or len(__import__('os').sched_getaffinity(0)) < 2"
json "{'matmul', 'attention_paged'} <= {r['op'] for r in j['degrees'][1]['profile']['decode']}"
json "all(rows == sorted(rows, key=lambda r: -r['s']) for d in j['degrees'] for rows in (d['profile']['prefill'], d['profile']['decode']))"
json "all(0.2 < sum(r['s'] for r in d['profile']['decode']) * d['decode_tokens_per_s'] < 1.2 for d in j['degrees'])"
json "all(r['limit_s'] > 0 for d in j['degrees'] for r in d['profile']['prefill'] if r['op'] == 'matmul')"
# each rank reads its weights once a step (the other count has the padding of panels)
json "all(abs(len(d['kernel_s']['decode_step']) * sum(r['weight_bytes'] for r in d['profile']['decode']) / d['weight_bytes_per_step'] - 1) < 0.02 for d in j['degrees'])"
json "{r['kind'] for r in j['degrees'][1]['profile']['decode']} == {'kernel', 'communication', 'waiting', 'rest'}"
json "{r['kind'] for r in j['degrees'][0]['profile']['decode']} == {'kernel', 'rest'}"
check "bench --batch" 0 "$plait" bench "$model" -tp 2 -t 1 --prompt-tokens 32 --gen-tokens 8 --repeat 1 --batch 5 --json
json "j['batch'] == 5 and j['degrees'][0]['decode_tokens_per_s'] > 0"
check "bench --comm" 0 "$plait" bench --comm -tp 2 --json
json "{'barrier', 'all_reduce'} <= {c['op'] for c in j['collectives']} and all(c['median_us'] > 0 for c in j['collectives'])"
for ranks in thread process; do
  check "trace --ranks $ranks" 0 "$plait" trace "$model" -tp 2 -t 1 --ranks $ranks --prompt-tokens 20 --gen-tokens 5 -o "$work/trace.json"
  check "timeline of ranks as $ranks" 0 python3 scripts/check_trace.py "$work/trace.json" 2 6
done
check "trace of one rank" 0 "$plait" trace "$model" -tp 1 -c 512 --prompt-tokens 500 --gen-tokens 1 -o "$work/trace.json"
check "timeline of one rank" 0 python3 scripts/check_trace.py "$work/trace.json" 1 2
check "trace to nowhere" 4 "$plait" trace "$model" -o "$work/nowhere/trace.json" && says "cannot create"
check "trace of no steps" 2 "$plait" trace "$model" --gen-tokens 0 -o "$work/trace.json" && says "want 1 to"
check "bench beyond the context" 3 "$plait" bench "$model" -tp 1 -c 64 --prompt-tokens 64
check doctor 0 "$plait" doctor --json
json "set(j) >= {'processor','isa','memory','read_bytes_per_s','f32_flops','latency_ns','regime','limits','mpi','advice'}"
json "j['read_bytes_per_s']['one_core'] > 1e8 and j['f32_flops']['all_cores'] > 1e8"
PLAIT_ISA=portable check "doctor, portable" 0 "$plait" doctor --json
json "j['isa']['taken'] == 'portable'"

check "explain --max-num-seqs" 0 "$plait" explain "$model" -tp 2 --json -c 512
cp "$work/out" "$work/explained"
check "explain --max-num-seqs 8" 0 "$plait" explain "$model" -tp 2 --json -c 512 --max-num-seqs 8
json "j['sequences'] == 8 and all(a['kv_bytes'] == 8 * b['kv_bytes'] for a, b in zip(j['ranks'], json.load(open('$work/explained'))['ranks']))"

# explain: 405B on 64 ranks in a second and 200 MB (processor time: the machine may be busy), from its config alone
if [ -f "$big" ]; then
  python3 - "$plait" "$big" "$work/out" <<'PY' || failures=$((failures + 1))
import resource, subprocess, sys
subprocess.run([sys.argv[1], "explain", sys.argv[2], "-tp", "64", "--json"], stdout=open(sys.argv[3], "w"), check=True)
u = resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"explain 405B on 64 ranks: {u.ru_utime + u.ru_stime:.2f} s, {u.ru_maxrss / 1024:.0f} MB")
sys.exit(u.ru_utime + u.ru_stime > 1 or u.ru_maxrss > 200 * 1024)
PY
  json "len(j['ranks']) == 64 and sum(r['count'] for r in j['collectives']['decode']) == 2 * 126 + 2"
  json "sum(r['weights']['ffn'] for r in j['ranks']) == 126 * 3 * 16384 * 53248 * 2"
  json "sum(r['weights']['embedding'] for r in j['ranks']) == 2 * 128256 * 16384 * 2"
fi

[ "$failures" = 0 ] || { echo "$failures checks failed"; exit 1; }
echo "all checks passed"
