"""Writes template-cases.json: prompts that Jinja2, set up as Hugging Face's library does, makes.

Usage: make_template_cases.py > template-cases.json (beside chat-template.jinja)
Needs: pip install jinja2. Made with Jinja2 3.1.
"""

import json
import pathlib

from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent
LARGE = (HERE / "chat-template.jinja").read_text()

# Small templates, one point each; all see the same variables.
SMALL = {
    "nano": "{%- for m in messages -%}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant\n{%- endif -%}",
    "white space": "a\n  {% if true %}\n  b\n  {% endif %}\nc {{ 1 }}\n {#- note -#} \n d\n",
    "python texts": "{{ true }} {{ none }} {{ [1, 'a', 2.5, none] }} {{ {'k': false} }} {{ 1.0 }} {{ missing }}|"
    "{{ 7 // 2 }} {{ 7 / 2 }} {{ 7 % 3 }} {{ -7 // 2 }} {{ 2 ** 3 }}",
    "json": "{{ {'z': 1, 'a': [1.5, none, true, 'é<b>&\"\\\\\n\t'], 'm': {}, 'l': []} | tojson }}",
    "json indent": "{{ {'z': 1, 'a': [1, {'b': 2}], 'm': {}, 'l': []} | tojson(indent=2) }}",
    "json options": "{{ {'b': 'é😀', 'a': 1e-7} | tojson(ensure_ascii=true, sort_keys=true, separators=(',', ':')) }}",
    "strings": "{{ ' x '.strip() }}|{{ 'xxay'.lstrip('x') }}|{{ 'a,b,c'.split(',')[-1] }}|{{ 'ab'.upper() }}|"
    "{{ 'Hello'.replace('l', 'L') }}|{{ 'abc'.startswith('ab') }}|{{ 'a b'.title() }}|{{ 'abc'.find('c') }}|"
    "{{ 'a\nb'.splitlines() }}|{{ 'x'.join(['1', '2']) }}|{{ 'abc'.endswith('x') }}|{{ 'aXa'.lower() }}|{{ 'ab'.count('a') }}",
    "slices": "{{ 'hello'[1:3] }} {{ 'hello'[::-1] }} {{ [1, 2, 3, 4][1:] }} {{ [1, 2, 3][-2:] }} {{ [1, 2, 3][::-1] }}",
    "dicts": "{% for k, v in {'b': 1, 'a': 2}.items() %}{{ k }}={{ v }};{% endfor %}{{ {'a': 1}.get('b', 3) }}"
    "{% for k in {'b': 1, 'a': 2} %}{{ k }}{% endfor %}{{ {'b': 1}.keys() | list }}{{ {'b': 1}.values() | list }}",
    "loops": "{% for x in [1, 2, 3, 4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}"
    "{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ loop.previtem }}{{ loop.nextitem }} {% endfor %}"
    "{% for x in [] %}{% else %}none{% endfor %}",
    "sets": "{% set ns = namespace(a=1) %}{% set ns.a = ns.a + 1 %}{% set ns.b = [ns.a, {'c': 2}] %}{{ ns.a }}{{ ns.b }}"
    "{% set x, y = 1, 2 %}{{ x }}{{ y }}{% set block %}t{{ x }}{% endset %}{{ block }}{% set ns.t %}u{% endset %}{{ ns.t }}",
    "filters": "{{ [3, 1, 2] | sort | join('-') }} {{ [1, 2, 3] | map('string') | list }} {{ ' a ' | trim }} "
    "{{ [{'n': 1}, {'n': 2}] | map(attribute='n') | list }} {{ [{'n': 1}, {'n': 2}] | selectattr('n', 'equalto', 2) | list }} "
    "{{ missing | default('d') }} {{ 'abc' | length }} {{ [1, 2] | last }} {{ 'ab' | capitalize }} {{ [0, 1] | reject('equalto', 0) | list }}",
    "tests": "{{ 'x' is string }} {{ [] is sequence }} {{ {} is mapping }} {{ none is none }} {{ missing is defined }} "
    "{{ 1 is number }} {{ true is boolean }} {{ 'a' in 'abc' }} {{ 3 not in [1, 2] }} {{ 4 is divisibleby 2 }}",
    "macros": "{% macro m(x, y=2) %}<{{ x }},{{ y }}>{% endmacro %}{{ m(1) }}{{ m(1, y=3) }}"
    "{% macro c() %}[{{ caller() }}]{% endmacro %}{% call c() %}in{% endcall %}",
    "order": "{% for m in messages %}{% for k, v in m.items() %}{{ k }},{% endfor %}{% endfor %}{{ tools | tojson }}",
}

HI = {"role": "user", "content": "Hi <b> & 'you' é\n"}
SYSTEM = {"role": "system", "content": "  Be brief. "}
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks \"up\" <things> & more",
        "parameters": {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "number", "default": 1e-05}}},
    },
}
CALL = {
    "role": "assistant",
    "content": None,
    "reasoning_content": "\nhmm\n",
    "tool_calls": [
        {"type": "function", "function": {"name": "look", "arguments": {"z": "q", "n": 2, "f": 1.5, "t": True, "o": {"b": [1, None]}}}},
        {"name": "look", "arguments": {}},
    ],
}
CONVERSATIONS = [
    ([HI], {}),
    ([SYSTEM, HI], {"add_generation_prompt": True}),
    ([SYSTEM, HI], {"add_generation_prompt": True, "enable_thinking": False}),
    ([SYSTEM, HI], {"tools": [TOOL], "add_generation_prompt": True}),
    ([HI, {"role": "assistant", "content": "<think>\nso\n</think>\n\nanswer"}, HI], {"add_generation_prompt": True}),
    ([HI, {"role": "assistant", "content": "<think>\nso\n</think>\n\nanswer"}], {}),
    ([HI, CALL, {"role": "tool", "content": "one"}, {"role": "tool", "content": "two"}], {"tools": [TOOL], "add_generation_prompt": True}),
    ([{"role": "user", "content": [{"type": "text", "text": "see "}, {"type": "image"}, {"text": "!"}]}], {"bos_token": "<s>"}),
]
REFUSED = [
    ([], {}),
    ([HI, SYSTEM], {}),
    ([{"role": "robot", "content": ""}], {}),
    ([{"role": "system", "content": [{"type": "image"}]}], {}),
    ([{"role": "user", "content": 5}], {}),
]


class Raised(Exception):
    pass


def raise_exception(message):
    raise Raised(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def main():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    cases = []

    def add(name, template, messages, options):
        given = {"tools": None, "documents": None, "add_generation_prompt": False, **options, "messages": messages}
        case = {"name": name, "template": template, "messages": messages, "options": options}
        try:
            case["text"] = env.from_string(template).render(**given)
        except Raised as error:
            case["raised"] = str(error)
        cases.append(case)

    for n, (messages, options) in enumerate(CONVERSATIONS + REFUSED):
        add(f"large {n}", LARGE, messages, options)
        cases[-1]["template"] = None  # that of chat-template.jinja
    for name, template in SMALL.items():
        add(name, template, [SYSTEM, HI], {"tools": [TOOL], "add_generation_prompt": True})
    print(json.dumps(cases, indent=1, ensure_ascii=False))


main()
