#!/usr/bin/env python3
"""Files that lie, one command a file: exit code 4, one line that names the file and what is wrong with it, at most 100 MB
of memory above the file's own size and a second of processor time.

usage: check_hostile.py PLAIT [NAME]      NAME: only cases whose name holds it; prints what each said
The files of ../shared/data/malformed (PLAIT_SHARED) are tried too where they are there.
"""
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

PLAIT = os.path.abspath(sys.argv[1])
ONLY = sys.argv[2] if len(sys.argv) > 2 else None
MALFORMED = Path(os.environ.get("PLAIT_SHARED", "../shared")).resolve() / "data" / "malformed"
MOST_MB, MOST_S = 100, 1.0
SANITIZED = any(s in Path(PLAIT).read_bytes() for s in (b"__asan_init", b"__tsan_init"))  # memory and time say nothing

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 6, "intermediate_size": 8,
          "num_attention_heads": 3, "num_key_value_heads": 1, "num_hidden_layers": 1, "head_dim": 2, "vocab_size": 9,
          "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "tie_word_embeddings": True,
          "hidden_act": "silu", "torch_dtype": "float32"}
TOKENIZER = {"added_tokens": [{"id": 3, "content": "<end>", "special": True}], "normalizer": None,
             "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
             "decoder": {"type": "ByteLevel"},
             "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}}


def without(d, *keys):
    return {k: v for k, v in d.items() if k not in keys}


def put(d, path, value):
    """A copy of d in which the value at a/b/c is another."""
    d = json.loads(json.dumps(d))
    at = d
    *way, last = path.split("/")
    for key in way:
        at = at[key]
    at[last] = value
    return d


# --- the cases: name -> files of a folder, and the command's arguments after the folder or file ---

cases = []


def case(name, files, *args, command="explain", file=None):
    cases.append((name, files, command, file, args))


def config(name, text):
    case(f"config {name}", {"config.json": text if isinstance(text, (str, bytes)) else json.dumps(text)})


def configs():
    for key in ("hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size", "num_attention_heads", "rms_norm_eps"):
        for value in (0, -1, 2**70, 2**63, 1e400, "32", 32.5, [], {}, True):
            config(f"{key}={value}", put(CONFIG, key, value))
        if key != "rms_norm_eps":  # it has a default
            config(f"no {key}", without(CONFIG, key))
    for key, value in {"num_key_value_heads": 2, "num_key_value_heads ": None, "head_dim": 3, "rope_theta": -1,
                       "rope_theta ": "1e4", "sliding_window": 16, "hidden_act": "tanh2", "model_type": "none",
                       "architectures": ["Unknown"], "architectures ": "Llama", "eos_token_id": 9, "eos_token_id ": [1, 2**80],
                       "eos_token_id  ": {"a": 1}, "bos_token_id": 9, "layer_types": ["full_attention", "sliding"],
                       "torch_dtype": 3, "rope_scaling": {"rope_type": "yarn", "factor": 4}, "num_local_experts": 8,
                       "quantization_config": {"bits": 4}, "num_key_value_heads  ": 5, "layer_types ": "x"}.items():
        if value is not None:
            config(f"{key}={value}", put(CONFIG, key.strip(), value))
    text = json.dumps(CONFIG)
    config("empty", "")
    config("a list", "[]")
    config("cut", text[:-1])
    config("key twice", text[:-1] + ', "vocab_size": 9}')
    config("nested", "[" * 100_000)
    config("nested objects", '{"a":' * 100_000)
    config("invalid UTF-8", text.replace("silu", "si\xff").encode("latin-1"))
    config("NUL", text + "\0")
    config("NaN", text.replace("10000.0", "NaN"))
    config("16 MB of lists", "[" + "[]," * 5_000_000 + "[]]")
    config("16 MB of objects", "[" + '{"a":1},' * 1_900_000 + "{}]")
    config("16 MB of one text", '{"a": "' + "x" * 15_900_000 + '"}')
    config("16 MB of digits", '{"a": ' + "1" * 15_900_000 + "}")
    case("config 1 GiB", {"config.json": 1 << 30})


def safetensors(name, header, data=b"", length=None):
    header = header.encode() if isinstance(header, str) else header
    length = len(header) if length is None else length
    case(f"safetensors {name}", {"config.json": json.dumps(CONFIG), "tokenizer.json": json.dumps(TOKENIZER),
                                 "model.safetensors": struct.pack("<Q", length) + header + data}, "-p", "a", command="verify")


def safetensors_cases():
    one = '{"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    for size in (0, 7, 8):
        case(f"safetensors of {size} bytes", {"config.json": json.dumps(CONFIG), "model.safetensors": b"\1" * size})
    for n in (0, 1, 2**63, 2**64 - 1, len(one) + 16, len(one) + 9, 100_000_001):
        safetensors(f"length {n}", one, b"x" * 8, n)
    for name, header in {
        "no brace": "[]", "NUL": one + "\0", "BOM": "\ufeff" + one, "nested": "[" * 100_000, "nested in {": '{"a":' * 100_000,
        "twice": one[:-1] + "," + one[1:], "unknown dtype": one.replace("F32", "F33"), "lower case": one.replace("F32", "f32"),
        "floats": one.replace("[0,8]", "[0.0,8.0]"), "texts": one.replace("[0,8]", '["0","8"]'),
        "negative": one.replace("[0,8]", "[-8,0]"), "1e30": one.replace("[0,8]", "[0,1e30]"),
        "end before begin": one.replace("[0,8]", "[8,0]"), "another size": one.replace("[2]", "[3]"),
        "shape -1": one.replace("[2]", "[-1]"), "shape 2^63": one.replace("[2]", f"[{2**63}]"),
        "shape 2^32 x 2^32": one.replace("[2]", f"[{2**32},{2**32}]"), "shape 0 x 2^63": one.replace("[2]", f"[0,{2**63}]"),
        "10000 dims": one.replace("[2]", str([1] * 10_000)), "metadata number": one[:-1] + ',"__metadata__":{"a":1}}',
        "metadata twice": '{"__metadata__":{},"__metadata__":{},' + one[1:], "unfinished": one[:-1],
        "name with NUL": one.replace('"t"', '"t\\u0000"'), "name of 1 MiB": one.replace('"t"', '"' + "t" * (1 << 20) + '"'),
        "hole": one.replace("[0,8]", "[4,12]"), "invalid UTF-8": one.encode().replace(b"t", b"\xff", 1),
        "F4 of half a byte": one.replace("F32", "F4").replace("[2]", "[1]").replace("[0,8]", "[0,1]"),
        "100 MB of one name": '{"' + "a" * 90_000_000 + '":1}', "number of 20 MB": '{"t":' + "1" * 20_000_000 + "}",
        "a million tensors": "{" + ",".join(f'"{i}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for i in range(300_000)) + "}",
        "much metadata": '{"__metadata__":{' + ",".join(f'"{i}":""' for i in range(1_000_000)) + "}}",
    }.items():
        safetensors(name, header, b"x" * 8)
    safetensors("more data", one, b"x" * 9)
    safetensors("less data", one, b"x" * 7)
    safetensors("unknown tensor", one, b"x" * 8)


def index(name, content):
    text = content if isinstance(content, (str, bytes)) else json.dumps(content)
    case(f"index {name}", {"config.json": json.dumps(CONFIG), "model.safetensors.index.json": text,
                           "model-1.safetensors": struct.pack("<Q", 2) + b"{}"})


def index_cases():
    for name, shard in {"parent": "../x.safetensors", "absolute": "/etc/x.safetensors", "below": "a/b.safetensors",
                        "missing": "no.safetensors", "other kind": "x.bin", "NUL": "a\0.safetensors", "number": 3,
                        "null": None, "lacks the tensor": "model-1.safetensors", "empty": ""}.items():
        index(name, {"weight_map": {"t": shard}})
    index("list", {"weight_map": []})
    index("none", {})
    index("empty map", {"weight_map": {}})
    index("cut", '{"weight_map": {')
    index("tensor twice", '{"weight_map": {"a": "model-1.safetensors", "a": "model-1.safetensors"}}')
    index("of 20 MB", '{"weight_map": {' + ",".join(f'"{i}":"m.safetensors"' for i in range(800_000)) + "}}")
    index("of nothing, 20 MB", '{"weight_map": [' + "{}," * 7_000_000 + "{}]}")


def text(s):
    s = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(s)) + s


def key(name, kind, value):
    return text(name) + struct.pack("<I", kind) + value


def tensor(name, dims, kind=0, offset=0):
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def gguf(name, body, tensors=0, keys=0, version=3, magic=b"GGUF", command="explain"):
    bytes_ = magic + struct.pack("<IQQ", version, tensors, keys) + body
    case(f"gguf {name}", {"x.gguf": bytes_}, *(["a"] if command == "tokenize" else []), command=command, file="x.gguf")


def gguf_cases():
    u64 = struct.Struct("<Q").pack
    gguf("magic", b"", magic=b"GGML")
    for v in (0, 1, 4, 99, 0x03000000):
        gguf(f"version {v}", b"", version=v)
    for n in (1, 2**31, 2**63, 2**64 - 1):
        gguf(f"{n} tensors", b"", tensors=n)
        gguf(f"{n} keys", b"", keys=n)
        gguf(f"key of {n} bytes", u64(n) + b"x", keys=1)
        gguf(f"text of {n + 8} bytes", key("k", 8, u64(min(n + 8, 2**64 - 1)) + b"x"), keys=1)
        gguf(f"list of {n}", key("k", 9, struct.pack("<IQ", 10, n)), keys=1)
    gguf("empty key", key("", 0, b"x"), keys=1)
    gguf("key twice", key("k", 0, b"x") * 2, keys=2)
    gguf("type", key("k", 13, b"x" * 8), keys=1)
    gguf("lists in lists", key("k", 9, struct.pack("<IQ", 9, 1) * 100_000), keys=1)
    for a in (0, 13, 0x80000000):
        gguf(f"alignment {a}", key("general.alignment", 4, struct.pack("<I", a)), keys=1)
    gguf("alignment text", key("general.alignment", 8, text("32")), keys=1)
    data = b"\0" * 4096
    for name, dims in {"5 dims": [1] * 5, "dim 0": [0], "negative": [2**63], "product": [2**32, 2**32], "bytes": [2**61],
                       "beyond": [2**30]}.items():
        gguf(f"tensor {name}", tensor("t", dims) + data, tensors=1)
    gguf("tensor unaligned", tensor("t", [4], offset=8) + data, tensors=1)
    gguf("tensor beyond", tensor("t", [4], offset=2**40) + data, tensors=1)
    gguf("tensor twice", tensor("t", [4]) * 2 + data, tensors=2)
    gguf("tensors overlap", tensor("a", [16]) + tensor("b", [4], offset=32) + data, tensors=2)
    gguf("a tensor alone", tensor("t", [4]) + data, tensors=1)
    count = key("split.count", 4, struct.pack("<I", 2))
    gguf("part of another name", count, keys=1)
    gguf("parts without end", key("split.count", 4, struct.pack("<I", 2**31)), keys=1)
    first = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + count
    case("gguf part missing", {"x-00001-of-00002.gguf": first}, command="explain", file="x-00001-of-00002.gguf")
    case("gguf part twice", {"x-00001-of-00002.gguf": first, "x-00002-of-00002.gguf": first}, command="explain",
         file="x-00001-of-00002.gguf")
    gguf("much of nothing", b"".join(key(str(i), 0, b"x") for i in range(500_000)), keys=500_000)
    arch = key("general.architecture", 8, text("llama"))
    tokens = key("tokenizer.ggml.model", 8, text("llama")) + key("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 2) + text("a") + text("b\0"))
    gguf("no scores", arch + tokens, keys=3, command="tokenize")
    gguf("scores of other length", arch + tokens + key("tokenizer.ggml.scores", 9, struct.pack("<IQf", 6, 1, 1)), keys=4, command="tokenize")
    gguf("five million tokens", arch + key("tokenizer.ggml.model", 8, text("gpt2")) +
         key("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 5_000_000) + text("") * 5_000_000), keys=3, command="tokenize")


def tokenizer(name, content):
    t = content if isinstance(content, (str, bytes)) else json.dumps(content)
    case(f"tokenizer {name}", {"config.json": json.dumps(CONFIG), "tokenizer.json": t}, "ab ab", command="tokenize")


def tokenizer_cases():
    tokenizer("empty", "")
    tokenizer("nested", "[" * 100_000)
    sequence = {"type": "NFC"}
    for _ in range(200):
        sequence = {"type": "Sequence", "normalizers": [sequence]}
    tokenizer("nested normalizer", put(TOKENIZER, "normalizer", sequence))
    for path in ("model", "model/type", "model/vocab", "model/merges", "decoder", "pre_tokenizer/type", "added_tokens"):
        for value in (3, "x", ["x"], [[1, 2]], {"type": "X"}):
            if path == "model/merges" or value != ["x"]:
                tokenizer(f"{path}={value}", put(TOKENIZER, path, value))
    for name, value in {"id of two": {"a": 0, "b": 0, "ab": 2}, "id -1": {"a": -1}, "id 2^40": {"a": 2**40},
                        "id 1.5": {"a": 1.5}, "empty token": {"": 0}, "gap": {"a": 0, "b": 1, "ab": 16_000_000}}.items():
        tokenizer(f"vocab {name}", put(TOKENIZER, "model/vocab", value))
    for name, value in {"absent": ["a x"], "three parts": ["a b c"], "join absent": ["b a"], "one": ["ab"], "mixed": ["a b", ["a", "b"]]}.items():
        tokenizer(f"merges {name}", put(TOKENIZER, "model/merges", value))
    for name, pattern in {"open": "(a", "behind": "(?<=a+)b", "nested sets": "[[a]]", "deep": "(" * 5000 + ")" * 5000,
                          "large": "(?:" * 3 + "a" + "{1,60000}){1,60000}){1,60000}" , "hostile": "(?:a|b|ab)*(?:a|b|ab)*(?:a|b|ab)*(?:a|b|ab)*$^"}.items():
        t = put(TOKENIZER, "pre_tokenizer", {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"})
        case(f"tokenizer regex {name}", {"config.json": json.dumps(CONFIG), "tokenizer.json": json.dumps(t), "text": "ab" * 200},
             "--file", "{}/text", command="tokenize")
    grow = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
    tokenizer("growing", put(TOKENIZER, "normalizer", {"type": "Sequence", "normalizers": [grow] * 20}))
    tokenizer("1000 steps", put(TOKENIZER, "normalizer", {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 1000}))
    tokenizer("lone surrogate", json.dumps(TOKENIZER).replace("<end>", "\\ud800"))
    tokenizer("20 MB of lists", json.dumps(TOKENIZER)[:-1] + ',"x":[' + "[]," * 6_000_000 + "[]]}")
    tokenizer("2 MB of added tokens", put(TOKENIZER, "added_tokens", [{}] * 500_000))


def plan(name, content):
    case(f"plan {name}", {"config.json": json.dumps(CONFIG), "plan": content}, "--plan", "{}/plan")


def plan_cases():
    axis = '[[axis]]\nname = "tp"\nsize = {}\ndims = "N K F V"\n'
    for value in ("0", "-1", "99999999", "1e3", '"2"', "9223372036854775808", "[]"):
        plan(f"size {value}", "plan = 1\n" + axis.format(value))
    good = "plan = 1\n" + axis.format(2)
    for name, bad in {"version": "plan = 2\n", "key": "speed = 1\n", "no TOML": "plan = = 1", "NUL": "plan = 1\0\n",
                      "twice": good + axis.format(2), "dims": good.replace("F V", "F Q"), "dim twice": good.replace("F V", "F F"),
                      "unit": good + 'unit = "row"\n', "weights": good + "weights = [1]\n", "no weight": good + "weights = [0, 0]\n",
                      "weight": good + "weights = [1, -1]\n", "weight text": good + 'weights = ["a", "b"]\n', "leaf": good + "[leaves]\nF = 0\n",
                      "leaf dim": good + "[leaves]\nQQ = 1\n", "name": good.replace('"tp"', '"t p"'), "no name": good.replace('name = "tp"\n', ""),
                      "axis": "axis = 3\n", "nested": "x = " + "[" * 100_000, "nested tables": "[" + ".".join("a" * 50_000) + "]\n",
                      "axes": "plan = 1\n" + "".join(axis.format(1).replace("tp", f"a{i}") for i in range(2000)),
                      "16 MB": "plan = 1\n" + "# a comment\n" * 1_400_000, "16 MB of keys": "".join(f"a{i} = 1\n" for i in range(1_400_000)),
                      "invalid UTF-8": b"plan = 1\n[[axis]]\nname = \"\xff\"\n", "long list": good + "weights = [" + "1," * 100_000 + "1]\n"}.items():
        plan(name, bad)
    case("plan is a device", {"config.json": json.dumps(CONFIG)}, "--plan", "/dev/zero")
    case("plan is a folder", {"config.json": json.dumps(CONFIG)}, "--plan", "{}")


def malformed():
    for f in sorted(f for f in MALFORMED.rglob("*") if f.is_file()):
        case(f"malformed {f.relative_to(MALFORMED)}", {}, command="explain", file=str(f))
        case(f"malformed tokenizer {f.relative_to(MALFORMED)}", {}, "a", command="tokenize", file=str(f))


def measure(argv, err_path):
    """Runs argv in a worker, which is small: a child's peak memory begins with what its parent had."""
    with open(err_path, "wb") as err:
        p = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=err, stdin=subprocess.DEVNULL,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (10, 10)))
        _, status, used = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    return p.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6


def run(workers, name, files, command, file, args):
    folder = Path(tempfile.mkdtemp(prefix="plait-hostile-"))
    try:
        size = 0
        for n, content in files.items():
            path = folder / n
            path.parent.mkdir(exist_ok=True)
            if isinstance(content, int):  # of zeros, taking no room
                with open(path, "wb") as f:
                    f.truncate(content)
                content = b""
            content = content.encode() if isinstance(content, str) else content
            if content:
                path.write_bytes(content)
            elif not path.exists():
                path.touch()
            size = max(size, len(content))
        model = folder if file is None else folder / file
        if not files:
            size = os.path.getsize(model)
        argv = [PLAIT, command, str(model), *(a.format(folder) for a in args)]
        code, seconds, mb = workers.submit(measure, argv, folder / ".err").result()
        said = (folder / ".err").read_text(errors="replace")
    finally:
        shutil.rmtree(folder)
    wrong = []
    if code != 4:
        wrong.append(f"exit code {code}")
    line = said.strip()
    if "\n" in line or not line.startswith("plait: ") or len(line) > 2000 or not any(w in line for w in ("got", "want", "cannot", "missing", "is not", "axis", "unknown", "plan", "fit")):
        wrong.append("no such message")
    if any(ord(c) < 32 for c in line):
        wrong.append("control characters in the message")
    if not SANITIZED and mb > MOST_MB + size / 1e6:
        wrong.append(f"{mb:.0f} MB for a file of {size / 1e6:.1f} MB")
    if not SANITIZED and seconds > MOST_S:
        wrong.append(f"{seconds:.2f} s")
    if ONLY:
        print(f"{name}: {mb:.0f} MB, {seconds:.2f} s, {line}")
    return (seconds, mb - size / 1e6, f"{name}: {', '.join(wrong)}: {line[:300]}" if wrong else None)


def main():
    workers = ProcessPoolExecutor(2)
    list(workers.map(abs, range(2)))  # they start now, before there is anything to inherit
    for add in (configs, safetensors_cases, index_cases, gguf_cases, tokenizer_cases, plan_cases, malformed):
        add()
    chosen = [c for c in cases if ONLY is None or ONLY in c[0]]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda c: run(workers, *c), chosen))
    workers.shutdown()
    problems = [r[2] for r in results if r[2]]
    for p in problems:
        print(p, file=sys.stderr)
    if not MALFORMED.exists():
        print(f"skipped: {MALFORMED} is not there")
    print(f"{len(results)} files, {len(problems)} problems; at most {max(r[0] for r in results):.2f} s and "
          f"{max(r[1] for r in results):.0f} MB above the file's size")
    return 1 if problems else 0


sys.exit(main())
