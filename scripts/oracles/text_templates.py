#!/usr/bin/env python3
"""Writes plait/text/testdata/templates_expected.json: what jinja2 makes of templates, set up as transformers sets it up.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install jinja2==3.1.6 gguf
    /tmp/venv/bin/python scripts/oracles/text_templates.py SHARED_DATA SMOLLM2_GGUF

A case has a template (or the file that has it), variables, and the output or `error: true`.
"""
import json
import sys
from pathlib import Path

import jinja2
from gguf import GGUFReader
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


ENV = environment()
VARIABLES = {
    "a": 7, "b": -3, "x": 2.5, "s": " Hello, World! ", "u": "Gr\u00fc\u00dfe \U0001f999 \u65e5\u672c", "e": "", "n": None,
    "t": True, "l": [3, 1, 2], "w": ["b", "A", "c"], "d": {"k": 1, "name": "it's", "z": {"deep": [1, {"q": None}]}},
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi\n"},
                 {"role": "assistant", "content": "Hello \"you\""}],
}

SNIPPETS = r"""
{{ a }} {{ b }} {{ x }} {{ s }} {{ u }} {{ n }} {{ t }} {{ missing }}|
{{ l }} {{ w }} {{ d }} {{ [] }} {{ {} }} {{ ['it\'s', "q\"", 1.0, 1e20, 1e-7, none, true] }}
{{ a + b }} {{ a - b }} {{ a * b }} {{ a / 2 }} {{ a // 2 }} {{ b // 2 }} {{ a % 3 }} {{ b % 5 }} {{ 2 ** 10 }} {{ -a }} {{ +a }}
{{ x + 1 }} {{ x * 2 }} {{ x // 1 }} {{ 7.5 % 2 }} {{ 1 / 3 }} {{ 10 / 5 }} {{ 2 ** -1 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ -7 // 2 }}
{{ 'a' + 'b' 'c' ~ 1 ~ none ~ true ~ 1.5 ~ [1] }} {{ 'ab' * 3 }} {{ [1] + [2] }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ 'a' != 'b' }} {{ 'a' < 'b' }} {{ a >= 7 }} {{ a <= 6 }} {{ l == [3, 1, 2] }} {{ d == d }}
{{ 'ell' in s }} {{ 'x' not in s }} {{ 3 in l }} {{ 'k' in d }} {{ 'q' in d }} {{ not t }} {{ not e }} {{ t and a }} {{ e or 'x' }} {{ n and 1 }}
{{ not a == 7 }} {{ not t and t }} {{ 1 ~ 2 * 3 ~ 4 }} {{ (1 + 2) * 3 }} {{ 1 - 2 - 3 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }}
{{ 'yes' if t else 'no' }} {{ 'yes' if e else 'no' }} {{ 'yes' if e }}| {{ 1 if e else 2 if e else 3 }}
{{ l[0] }} {{ l[-1] }} {{ l[5] }}| {{ d['k'] }} {{ d.k }} {{ d.nope }}| {{ d.z.deep[1].q }} {{ l.0 }} {{ u[1] }} {{ u[-1] }} {{ s[0] }}|
{{ l[1:] }} {{ l[:2] }} {{ l[::-1] }} {{ l[-2:] }} {{ l[5:] }} {{ l[0:3:2] }} {{ u[2:7] }} {{ u[::-1] }} {{ u[:-3] }} {{ l[::-2] }} {{ l[2:0:-1] }} {{ l[-9:9] }}
{{ s | trim }}| {{ s | length }} {{ u | length }} {{ l | count }} {{ d | length }} {{ s | upper }} {{ u | lower }} {{ 'hello wORLD' | title }} {{ 'hELLO' | capitalize }}
{{ l | first }} {{ l | last }} {{ [] | first }}| {{ 'abc' | first }} {{ l | join(', ') }} {{ l | join }} {{ w | join('-') | upper }} {{ 'abc' | join('.') }}
{{ missing | default('none') }} {{ n | default('x') }} {{ e | default('x', true) }} {{ missing | default }}| {{ n | d('x', boolean=true) }}
{{ d | tojson }} {{ u | tojson }} {{ [1, 2.0, none, true, 'a\n"\\<>&'] | tojson }} {{ '' | tojson }} {{ {} | tojson }} {{ [] | tojson }}
{{ d | tojson(indent=2) }} {{ [] | tojson(indent=4) }} {{ messages | tojson(indent=4) }}
{{ 'a-b-c' | replace('-', '+') }} {{ 'aaa' | replace('a', 'b', 2) }} {{ 'a' | string ~ 1 }} {{ '12' | int + 1 }} {{ 'x' | int }} {{ 3.9 | int }} {{ -3 | abs }}
{{ l | sort }} {{ w | sort }} {{ l | sort(reverse=true) }} {{ l | reverse | list }} {{ 'abc' | reverse }} {{ messages | map(attribute='role') | list }} {{ w | map('upper') | join }}
{{ messages | selectattr('role', 'equalto', 'user') | list }} {{ messages | rejectattr('role', 'eq', 'user') | map(attribute='role') | join(',') }} {{ l | select('odd') | list }} {{ l | reject('gt', 1) | list }}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {{ d.keys() | list }} {{ d.values() | list }} {{ d.get('k') }} {{ d.get('nope') }} {{ d.get('nope', 5) }} {{ d | items | list | length }}
{{ s.strip() }}| {{ s.lstrip() }}| {{ s.rstrip() }}| {{ 'xxaxx'.strip('x') }} {{ 'xyaxy'.lstrip('yx') }} {{ s.strip(' H!') }}|
{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a b c'.split(none, 1) }} {{ 'abc'.split('x') }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a</t>b'.split('</t>')[-1] }}
{{ s.startswith(' He') }} {{ s.endswith('x') }} {{ 'ab'.startswith(('x', 'a')) }} {{ 'aXb'.upper() }} {{ 'aXb'.lower() }} {{ 'aaa'.replace('a', 'b') }} {{ 'ab'.replace('', '-') }} {{ ', '.join(w) }} {{ 'a\u00fcx'.find('x') }} {{ 'banana'.count('an') }} {{ 'they\'re here'.title() }} {{ 'hELLO wORLD'.capitalize() }}
{{ a is defined }} {{ missing is defined }} {{ missing is not defined }} {{ n is none }} {{ s is string }} {{ a is number }} {{ t is boolean }} {{ a is integer }} {{ x is float }} {{ d is mapping }} {{ l is iterable }} {{ l is sequence }} {{ a is odd }} {{ a is even }} {{ a is divisibleby 7 }} {{ a is divisibleby(2) }} {{ t is true }} {{ t is false }} {{ missing is undefined }} {{ (1 in l) is true }} {{ 'a' is in w }} {{ 'A' is in w }} {{ a is eq 7 }}
{{ not missing is defined }} {{ d.nope is defined }} {{ d.k is defined and d.k == 1 }} {{ messages[0]['role'] is string }} {{ n is string or a is not string }}
{% if a > 5 %}big{% elif a > 3 %}mid{% else %}small{% endif %} {% if e %}x{% endif %} {% if e %}x{% elif n %}y{% else %}z{% endif %}
{% for m in messages %}{{ loop.index }}/{{ loop.length }} {{ loop.index0 }} {{ loop.first }} {{ loop.last }} {{ loop.revindex }} {{ loop.revindex0 }} {{ m.role }}{% if not loop.last %}, {% endif %}{% endfor %}
{% for m in messages if m.role != 'system' %}{{ loop.index }}{{ m['content'] | trim }};{% else %}none{% endfor %} {% for m in [] %}x{% else %}none{% endfor %} {% for m in missing %}x{% else %}none{% endfor %}
{% for m in messages %}{% if loop.previtem is defined %}{{ loop.previtem.role }}>{% endif %}{{ m.role }}{% if loop.nextitem is defined %}<{{ loop.nextitem.role }}{% endif %} {% endfor %}
{% for i in l %}{% for j in l %}{{ loop.index }}{{ i }}{{ j }} {% endfor %}{{ loop.index }};{% endfor %} {% for c in 'añb' %}[{{ c }}]{% endfor %} {% for k in d %}{{ k }} {% endfor %}
{% for i in range(5) %}{{ i }}{% endfor %} {% for i in range(2, 8, 3) %}{{ i }}{% endfor %} {{ range(3, 0, -1) | list }} {% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% set y = 1 %}{{ y }}{% for i in l %}{% set y = i %}{{ y }}{% endfor %}{{ y }} {% if t %}{% set y = 9 %}{% endif %}{{ y }} {% for i in l %}{{ q }}{% set q = i %}{{ q }}{% endfor %}{{ q }}|
{% set ns = namespace(found=false, n=0) %}{% for i in l %}{% if i == 1 %}{% set ns.found = true %}{% endif %}{% set ns.n = ns.n + i %}{% set ns.new = i %}{% endfor %}{{ ns.found }} {{ ns.n }} {{ ns.new }} {{ ns.none }}|
{% set text %}  block {{ a }}{% endset %}[{{ text }}] {% set p, q = 1, 'two' %}{{ p }}{{ q }} {% set tup = (1, 2) %}{{ tup[1] }} {% for p, q in [(1, 2), (3, 4)] %}{{ p }}:{{ q }} {% endfor %}
{% set content = '<|' + messages[1]['role'] + '|>' + messages[1]['content'] | trim + '</s>' %}{{ content }}
{# a comment #}A{#- another -#} B {#+ c +#} C
{%- if t -%}  tight  {%- endif -%}  x {{- a -}}  y
{{ "double \"q\" \n \t \x41 \u00e9 \U0001f600 \q \101" }} {{ 'single \'q\' \\ \/' }} {{ 'multi
line' }}
{{ {'a': {'b': 1}}.a.b }} {{ {'a': 1}['a'] }} {{ [[1, 2], [3]][0][1] }} {{ (1, 2)[0] }} {{ 'x' 'y' }} {{ 1_000 }} {{ {'a': 1,} }} {{ [1, 2,] }}
{{ messages[0].role ~ ': ' ~ messages[0].content }} {{ messages | length }} {{ messages[-1].content }} {{ messages[1:] | length }} {{ (messages | last).role }} {{ messages[0]['role'] == 'system' and messages[1].role != 'system' }}
{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ '<s>' + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + '</s>' }}{% endif %}{% endfor %}
{{ 'a\n\nb\n' | indent }} {{ 'a\nb' | indent(2, true) }} {{ 'a\nb' | indent(width=3) }}
{{ "%" }}{{ '}}' }}{{ '{%' }} { { } } {a} %} #}
{{ none is none }} {{ None }} {{ True }} {{ False }} {{ none == missing }} {{ missing == missing }} {{ missing | length }} {{ missing ~ 'x' }} {{ [missing] | length }}
{{ 1 if missing is defined else missing | default('d') }} {{ (a | string) + 'x' }} {{ a | string | length }} {{ 'x' if a is defined and a else 'y' }}
{{ [1, 'a', none] | join(';') }} {{ ['x'] * 1 if false else 'ok' }} {{ {'b': 2, 'a': 1} | tojson }} {{ 'é' | upper }} {{ 'ß' | length }} {{ ' \u3000x\u00a0' | trim }}| {{ 'a b' | trim('a') }}|
{{ dict(a=1, b='x') }} {{ dict(a=1).a }} {{ namespace(a=2).a }} {{ true and false or true }} {{ 1 + true }} {{ true == 1 }} {{ 0.1 + 0.2 }} {{ 1e3 }} {{ 123456789012345680.0 }} {{ 5 // 0.3 }}
""".strip("\n")

# White space: one case each, since lines matter.
LINES = [
    "{% if t %}\nyes\n{% endif %}\nend\n", "  {% if t %}\n  yes\n  {% endif %}\n  end\n\n", "a  {% if t %} b {% endif %}  \nc",
    "\n\n{% for i in l %}\n    {{ i }}\n{% endfor %}\n\n", "{% for i in l -%}\n  {{ i }}\n{%- endfor %}\n", "  {# c #}\n  x {# d #}\ny",
    "{%+ if t %}\n x {%+ endif +%}\ny", "   {%+ if t %}x{% endif %}\n", "{{ a }}\n{{ b }}\n", "{{ a -}}\n\n  b\n{{- b }}", "x\r\ny\r{% if t %}\r\nz{% endif %}",
    "{%- set q = 1 -%}\n\n  {{ q }}\n", "  {{ a }}  {% if t %}\n\t{% endif %}\n", "{% if t %}{% if t %}\n{% endif %}\n\n{% endif %}\nz", "a\n  {%- if t %}\n  b\n  {%- endif %}\n", "",
    "\n", "no tags", "{% set x2 %}\n  in\n{% endset %}\n[{{ x2 }}]", "{{ a }}{# x #}\n{{ b }}\n  {#- y #}  \n z", "{% if t %}  \n{% endif %}",
]

ERRORS = [
    "{{ missing.x }}", "{{ missing['x'] }}", "{{ raise_exception('no') }}", "{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ 'a' + missing }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}",
    "{% if %}x{% endif %}", "{% if t %}x", "{% endif %}", "{% for x in l %}", "{{ a", "{{ 'a }}", "{% for in l %}{% endfor %}", "{{ a b }}", "{{ }}", "{{ (1 }}", "{{ 1 ) }}",
    "{{ a | nofilter }}", "{{ a is notest }}", "{% unknown %}", "{# open", "{{ [1, }}", "{{ n.x.y }}", "{% for i in n %}{% endfor %}", "{{ a() }}", "{{ nofunction() }}", "{{ l.append(1) }}",
    "{% set ns = 1 %}{% set ns.x = 2 %}", "{{ l[::0] }}", "{{ s.split('') }}", "{{ 1 < 'a' }}", "{% set p, q = [1] %}", "{{ a ! b }}", "{{ {1: } }}", "{% break %}", "{% elif t %}", "{{ s.nomethod() }}",
    "{{ a. }}", "{{ 'x' | }}", "{{ a[ }}", "{% if t %}{% else %}{% else %}{% endif %}", "{{ -'a' }}",
]


def case(template, variables=None):
    c = {"template": template}
    try:
        c["output"] = ENV.from_string(template).render(**(variables or VARIABLES))
    except Exception as e:
        c["error"] = True
        if variables is None and template not in ERRORS:
            raise ValueError(template) from e
    return c


U, A, S = ({"role": r, "content": c} for r, c in
           (("user", "What is 2 + 2?"), ("assistant", " Four.\n"), ("system", "You are terse.")))
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {
    "type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}}}
CALL = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nLet me see.", "tool_calls": [
    {"function": {"name": "add", "arguments": {"x": 2, "why": "caf\u00e9"}}}, {"name": "add", "arguments": "{}"}]}
RESULT = {"role": "tool", "content": "4"}
CONVERSATIONS = [
    {"messages": [U]}, {"messages": [S, U]}, {"messages": [S, U, A, U]}, {"messages": [U, A, U], "add_generation_prompt": False},
    {"messages": [S, U, CALL, RESULT, RESULT, A, U], "tools": [TOOL]}, {"messages": [U, CALL, RESULT], "tools": [TOOL], "enable_thinking": False},
]


def main():
    shared = Path(sys.argv[1])
    files = {"tokenizers/" + f: json.loads((shared / "tokenizers" / f).read_text())["chat_template"] for f in (
        "qwen2/tokenizer_config.json", "qwen2/qwen3-30b.tokenizer_config.json", "llama3/tokenizer_config.json")}
    files["SmolLM2"] = GGUFReader(sys.argv[2]).fields["tokenizer.chat_template"].contents()
    cases = {"variables": VARIABLES, "snippets": [], "files": []}
    text = SNIPPETS.replace("multi\nline", "multi\0line")
    cases["snippets"] = [case(s.replace("\0", "\n")) for s in text.split("\n")] + [case(s) for s in LINES]
    for c in cases["snippets"]:
        assert "output" in c, c
    cases["errors"] = [case(s) for s in ERRORS]
    for c in cases["errors"]:
        assert "error" in c, c
    for name, template in files.items():
        for conversation in CONVERSATIONS:
            variables = {"tools": None, "documents": None, "add_generation_prompt": True, "bos_token": "<s>",
                         "eos_token": "</s>", **conversation}
            rendered = case(template, variables)
            cases["files"].append({"file": name, "variables": variables, "output": rendered["output"]})
    out = Path(__file__).parents[2] / "plait/text/testdata/templates_expected.json"
    out.write_text(json.dumps(cases, indent=1, ensure_ascii=True) + "\n")
    print(out, out.stat().st_size)


main()
