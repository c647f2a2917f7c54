"""Ten training steps of the small Llama and GPT-2 by PyTorch's autograd, in f64 and with operands of products in bf16:
tests/data/training.json, tests/data/training_bf16.json.

The models are written here in plain torch, since those of transformers round to f32 inside (norms, rotary angles). Loss:
cross entropy summed over counted tokens; gradients are divided by their number, clipped to a norm of 1, then SGD or AdamW
(torch.optim's own). Data: documents of plait/train/record.h.

With bf16 everything is f32 (a last bit more or less turns some rounding to bf16, and the next ones after it: in f64 losses differ
by 1e-4) but for two roundings: `kept` rounds a value where it is written (what a product reads, or the backward reads again),
`product` rounds the cotangent that comes back to it, which its two gradients read; attention's likewise. The residual stream, norms,
softmax, loss, optimizer and weights are not rounded. Gradients of the first step are kept too.

    /tmp/venv-oracle/bin/python scripts/oracles/training.py
"""
import json
import os

import numpy as np
import torch

from random_weights import mix64, random_weight, stream_of

STEPS = 10
LLAMA = dict(D=72, N=9, K=3, H=8, F=208, V=257, layers=2)
GPT2 = dict(D=40, N=5, K=5, H=8, F=160, V=97, layers=2, W=64)
bf16 = False


class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.bfloat16().float()

    @staticmethod
    def backward(ctx, d):
        return d


class RoundCotangent(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, d):
        return d.bfloat16().float()


def kept(x):
    return Kept.apply(x) if bf16 else x


def product(rule, x, w):
    y = torch.einsum(rule, kept(x), kept(w))
    return RoundCotangent.apply(y) if bf16 else y


def bits(stream, index):
    key = mix64(np.array([stream & ((1 << 64) - 1)], dtype=np.uint64))
    return int(mix64(key ^ np.array([index], dtype=np.uint64))[0])


def documents(V, step):
    for d in range(6):
        stream = stream_of("data") + step * 100 + d
        n = 3 + bits(stream, 1000) % 18
        ids = [bits(stream, i) % V for i in range(n + 1)]
        targets = [-1 if i % 7 == 3 else ids[i + 1] for i in range(n)]
        yield torch.tensor(ids[:n]), torch.tensor(targets)


class Attention(torch.autograd.Function):
    """Its backward reads the output as it was written, rounded."""

    @staticmethod
    def forward(ctx, q, k, v, mask):
        p = torch.softmax(torch.einsum("tnh,snh->nts", q, k) / q.shape[2]**0.5 + mask, -1)
        o = torch.einsum("nts,snh->tnh", p, v).bfloat16().float()
        ctx.save_for_backward(q, k, v, p, o)
        return o

    @staticmethod
    def backward(ctx, d):
        q, k, v, p, o = ctx.saved_tensors
        d = d.bfloat16().float()
        ds = p * (torch.einsum("tnh,snh->nts", d, v) - (d * o).sum(-1).T[..., None]) / q.shape[2]**0.5
        return (torch.einsum("nts,snh->tnh", ds, k), torch.einsum("nts,tnh->snh", ds, q),
                torch.einsum("nts,tnh->snh", p, d), None)


def attention(q, k, v):
    T, N, H = q.shape
    k, v = (x.repeat_interleave(N // x.shape[1], 1) for x in (k, v))
    mask = torch.full((T, T), float("-inf")).triu(1)
    if bf16:
        return Attention.apply(q, k, v, mask)
    return torch.einsum("nts,snh->tnh", torch.softmax(torch.einsum("tnh,snh->nts", q, k) / H**0.5 + mask, -1), v)


def rope(x, base=10000.0):
    T, _, H = x.shape
    w = torch.arange(T).double()[:, None] * base ** (-torch.arange(0, H, 2).double() / H)[None]
    c, s = (y[:, None].to(x.dtype) for y in (w.cos(), w.sin()))
    a, b = x[..., : H // 2], x[..., H // 2 :]
    return torch.cat([a * c - b * s, b * c + a * s], -1)


def llama(w, ids):
    def norm(x, g):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * g

    x = w["embedding"][ids]
    for l in range(LLAMA["layers"]):
        p = lambda n: w[f"layers.{l}.{n}"]
        h = norm(x, p("attention_norm"))
        q, k, v = (product("td,nhd->tnh", h, p(n)) for n in ("wq", "wk", "wv"))
        x = x + product("tnh,dnh->td", attention(kept(rope(q)), kept(rope(k)), kept(v)), p("wo"))
        h = norm(x, p("ffn_norm"))
        gate, up = (kept(product("td,fd->tf", h, p(n))) for n in ("gate", "up"))
        x = x + product("tf,df->td", torch.nn.functional.silu(gate) * up, p("down"))
    return product("td,vd->tv", norm(x, w["norm"]), w["embedding"])


def gpt2(w, ids):
    def norm(x, name):
        return torch.nn.functional.layer_norm(x, x.shape[-1:], w[name], w[name + ".bias"], 1e-5)

    x = w["embedding"][ids] + w["positions"][torch.arange(len(ids))]
    for l in range(GPT2["layers"]):
        p = lambda n: w[f"layers.{l}.{n}"]
        h = norm(x, f"layers.{l}.attention_norm")
        q, k, v = (kept(product("td,nhd->tnh", h, p(n)) + p(n + ".bias")) for n in ("wq", "wk", "wv"))
        x = x + product("tnh,dnh->td", attention(q, k, v), p("wo")) + p("wo.bias")
        h = norm(x, f"layers.{l}.ffn_norm")
        u = kept(product("td,fd->tf", h, p("up")) + p("up.bias"))
        u = 0.5 * u * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (u + 0.044715 * u**3)))
        x = x + product("tf,df->td", u, p("down")) + p("down.bias")
    return product("td,vd->tv", norm(x, "norm"), w["embedding"])


def shapes(c, gpt):
    D, N, K, H, F, V = (c[k] for k in "DNKHFV")
    s = {"embedding": (V, D), "norm": (D,)}
    if gpt:
        s |= {"positions": (c["W"], D), "norm.bias": (D,)}
    for l in range(c["layers"]):
        one = {"attention_norm": (D,), "wq": (N, H, D), "wk": (K, H, D), "wv": (K, H, D), "wo": (D, N, H),
               "ffn_norm": (D,), "up": (F, D), "down": (D, F)}
        if gpt:
            one |= {"attention_norm.bias": (D,), "wq.bias": (N, H), "wk.bias": (K, H), "wv.bias": (K, H),
                    "wo.bias": (D,), "ffn_norm.bias": (D,), "up.bias": (F,), "down.bias": (D,)}
        else:
            one["gate"] = (F, D)
        s |= {f"layers.{l}.{n}": v for n, v in one.items()}
    return s


def run(model, c, gpt, optimizer):
    w = {n: torch.tensor(random_weight(n, s).astype(np.float64)).to(torch.get_default_dtype()).requires_grad_() for n, s in shapes(c, gpt).items()}
    decayed = [n for n in w if w[n].dim() > 1 and "norm" not in n and "bias" not in n]
    if optimizer == "sgd":
        opt = torch.optim.SGD(list(w.values()), lr=1e-2)
    else:
        groups = [dict(params=[w[n] for n in decayed], weight_decay=0.1),
                  dict(params=[w[n] for n in w if n not in decayed], weight_decay=0.0)]
        opt = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
    losses, norms, gradients = [], [], {}
    for step in range(1, STEPS + 1):
        for g in opt.param_groups:
            g["lr"] = 1e-2 / step
        opt.zero_grad()
        total, count = 0, 0
        for ids, targets in documents(c["V"], step):
            total = total + torch.nn.functional.cross_entropy(model(w, ids), targets, ignore_index=-1, reduction="sum")
            count += int((targets >= 0).sum())
        total.backward()
        if bf16 and step == 1:
            gradients = {n: (x.grad.double()**2).sum().item() for n, x in w.items()}
        losses.append(total.item() / count)
        norm = sum((x.grad**2).sum() for x in w.values()).sqrt().item() / count
        norms.append(norm)
        scale = (1 / norm if norm > 1 else 1.0) / count
        for x in w.values():
            x.grad *= scale
        opt.step()
    state = {n: dict(sum=x.sum().item(), squares=(x * x).sum().item(), first=x.flatten()[:4].tolist()) for n, x in w.items()}
    return dict(losses=losses, norms=norms, weights=state) | (dict(gradient_squares=gradients) if bf16 else {})


for bf16, file in ((False, "training.json"), (True, "training_bf16.json")):
    torch.set_default_dtype(torch.float32 if bf16 else torch.float64)
    out = {f"{name}_{opt}": run(model, c, name == "gpt2", opt)
           for name, model, c in (("llama", llama, LLAMA), ("gpt2", gpt2, GPT2)) for opt in (("sgd",) if bf16 else ("sgd", "adamw"))}
    path = os.path.join(os.path.dirname(__file__), "../../tests/data", file)
    with open(path, "w") as f:
        json.dump(out, f, indent=0)
    print({k: v["losses"][:2] + v["losses"][-1:] for k, v in out.items()}, os.path.getsize(path))
