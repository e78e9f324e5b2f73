//! Chat templates against Jinja2's output, and hostile ones against the limits.

use std::time::{Duration, Instant};

use foretoken::Error;
use foretoken::tokenizer::{ChatMessage, ChatTemplate, RenderOptions, TemplateFault};
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
struct Case {
    name: String,
    template: Option<String>,
    messages: Vec<ChatMessage>,
    options: Map<String, Value>,
    text: Option<String>,
    raised: Option<String>,
}

const LARGE: &str = include_str!("data/chat-template.jinja");

/// How the expected texts were made is told in `data/make_template_cases.py`.
#[test]
fn prompts_are_those_of_jinja2() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("data/template-cases.json")).unwrap();
    assert!(cases.len() > 25);
    for case in cases {
        let mut vars = case.options;
        let bos = vars.shift_remove("bos_token").map(|v| v.as_str().unwrap().to_owned());
        let options = RenderOptions {
            add_generation_prompt: vars.shift_remove("add_generation_prompt") == Some(json!(true)),
            tools: vars.shift_remove("tools").map(|v| serde_json::from_value(v).unwrap()),
            vars,
        };
        let source = case.template.as_deref().unwrap_or(LARGE);
        let template = ChatTemplate::new(source, bos.as_deref(), None).unwrap();
        let got = template.render(&case.messages, &options);
        match (got, case.text, case.raised) {
            (Ok(got), Some(want), None) => assert_eq!(got, want, "{}", case.name),
            (Err(Error::Template(TemplateFault::Raised(got))), None, Some(want)) => {
                assert_eq!(got, want, "{}", case.name);
            }
            (got, want, raised) => panic!("{}: {got:?}, not {want:?} {raised:?}", case.name),
        }
    }
}

fn run(source: &str) -> Result<String, TemplateFault> {
    let hi = [ChatMessage::new("user", "hi")];
    let start = Instant::now();
    let result = ChatTemplate::new(source, None, Some("</s>"))
        .and_then(|template| template.render(&hi, &RenderOptions::default()));
    // Seconds where there is no optimisation and no free core; nothing may take longer.
    assert!(start.elapsed() < Duration::from_secs(60));
    result.map_err(|error| {
        let line = error.to_string();
        assert!(!line.contains('\n') && line.chars().count() < 500, "{line}");
        match error {
            Error::Template(fault) => fault,
            other => panic!("{other}"),
        }
    })
}

#[test]
fn what_a_template_is_given() {
    assert_eq!(run("{{ messages[0].content }}{{ bos_token }}{{ eos_token }}").unwrap(), "hi</s>");
    assert_eq!(run("a{% generation -%} b {%- endgeneration %}c").unwrap(), "abc");
    assert_eq!(run("{{ tools is none }}{{ tools is defined }}").unwrap(), "TrueTrue");
    let year: u64 = run("{{ strftime_now('%Y') }}").unwrap().parse().unwrap();
    assert!((2025..3000).contains(&year));

    let template = ChatTemplate::new("{{ n }}{{ messages | length }}", None, None).unwrap();
    let vars = json!({"n": 5, "messages": []}).as_object().unwrap().clone();
    let options = RenderOptions { vars, ..RenderOptions::default() };
    assert_eq!(template.render(&[ChatMessage::new("user", "")], &options).unwrap(), "51");
}

#[test]
fn messages_read_from_json_keep_what_they_carry() {
    let text = r#"{"role":"assistant","tool_calls":[{"b":1,"a":2}],"name":"x"}"#;
    let message: ChatMessage = serde_json::from_str(text).unwrap();
    assert_eq!((message.role.as_str(), &message.content), ("assistant", &Value::Null));
    let template = ChatTemplate::new("{{ messages | tojson }}", None, None).unwrap();
    let got = template.render(&[message], &RenderOptions::default()).unwrap();
    let want = r#"[{"role": "assistant", "content": null, "tool_calls": [{"b": 1, "a": 2}], "name": "x"}]"#;
    assert_eq!(got, want);
}

#[test]
fn faults_say_where_and_what() {
    use TemplateFault as F;
    let failed = |source: &str| match run(source).unwrap_err() {
        F::Failed { line, detail } => (line, detail),
        other => panic!("{other}"),
    };
    for source in ["{% if %}", "{{ 1 +", "{% unknown %}", "{% for x in y %}", "{{ '\\ud800' }}"] {
        let fault = run(&format!("\n{source}")).unwrap_err();
        assert!(matches!(fault, F::Syntax { line: 2, .. }), "{source}: {fault:?}");
    }
    assert_eq!(failed("a\n{{ missing.x }}").0, 2);
    assert!(failed("{{ 1 | nosuch }}").1.contains("nosuch"));
    assert!(failed("{{ 'a'.nosuch() }}").1.contains("nosuch"));
    assert!(failed("{{ strftime_now('%q') }}").1.contains("%q"));
    assert!(failed("{{ missing | tojson }}").1.contains("tojson"));
    assert!(failed("{{ [1] | tojson(separators=['a']) }}").1.contains("separators"));
    assert!(failed("{{ [1] | tojson(indent=1000) }}").1.contains("indent"));
    assert!(failed("{% include 'other' %}").1.contains("other"));
    assert_eq!(run("{{ raise_exception('a\nb') }}").unwrap_err(), F::Raised("a b".into()));
    let nested = "{% macro m() %}{{ raise_exception('in') }}{% endmacro %}{{ m() }}";
    assert_eq!(run(nested).unwrap_err(), F::Raised("in".into()));
    let long = run(&format!("{{{{ raise_exception('{}') }}}}", "é".repeat(1000))).unwrap_err();
    assert_eq!(long, F::Raised(format!("{}...", "é".repeat(400))));
    let size = (64 << 10) + 1;
    assert_eq!(run(&" ".repeat(size)).unwrap_err(), F::TooLarge { size, limit: size - 1 });
}

#[test]
fn endless_and_huge_templates_meet_a_limit() {
    use TemplateFault as F;
    let grow = |start: &str, step: &str| {
        format!(
            "{{% set ns = namespace(x={start}) %}}{{% for i in range(100) %}}\
             {{% set ns.x = {step} %}}{{% endfor %}}{{{{ ns.x | length }}}}"
        )
    };
    for source in [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}".to_owned(),
        grow("'ab'", "ns.x ~ ns.x"),
        grow("'ab'", "ns.x + ns.x"),
        grow("'ab'", "ns.x * 9"),
        grow("[1]", "ns.x + ns.x"),
        grow("'aa'", "ns.x | replace('a', 'aaaa')"),
        "{{ 'a' * 99999999999 }}".to_owned(),
        "{{ 'a\nb' | indent(99999999999) }}".to_owned(),
        "{% for i in range(99999) %}{{ 'a' * 99999 }}{% endfor %}".to_owned(),
        "{% set x %}{% for i in range(99999) %}{{ 'a' * 99999 }}{% endfor %}{% endset %}".to_owned(),
        "{% set x = 'a' * 9999999 %}{% for i in range(99999) %}{% if x | tojson %}{% endif %}{% endfor %}"
            .to_owned(),
    ] {
        let fault = run(&source).unwrap_err();
        assert!(matches!(fault, F::OutOfFuel | F::TooLong { .. }), "{source}: {fault:?}");
    }
    let much = "{% set x = 'a' * 1000000 %}{% for i in range(70) %}{{ x }}{% endfor %}";
    assert_eq!(run(much).unwrap_err(), F::TooLong { limit: 64 << 20 });
    // Not far below the limit all is well.
    assert_eq!(run(&much.replace("70", "60")).unwrap().len(), 60_000_000);
}

/// Widths, precisions and repeated arguments ask for more text than there is fuel for,
/// or than the template engine can take.
#[test]
fn formats_are_bounded_before_they_are_filled() {
    use TemplateFault as F;
    assert_eq!(run("{{ '{:>5}{:.1f}{}'.format('a', 1.25, [1]) }}").unwrap(), "    a1.2[1]");
    assert_eq!(run("{{ '%5s%.1f%%'|format('a', 1.25) }}").unwrap(), "    a1.2%");
    assert_eq!(run("{{ '{:4096}'.format(1) }}").unwrap().len(), 4096);
    assert_eq!(run("{{ '%(a)4096d'|format({'a': 1}) }}").unwrap().len(), 4096);
    for source in [
        "{{ '{:4000000000}'.format(1) }}",
        "{{ '{:18446744073709551615}'.format(1) }}",
        "{{ '{:99999999999999999999}'.format(1) }}",
        "{{ '{:.2000000000f}'.format(1.5) }}",
        "{{ '{:x^1500000000}'.format(1) }}",
        "{{ '{:0900000000d}'.format(1) }}",
        "{{ '{0[a]:4097}'.format({'a': 1}) }}",
        "{{ '{:4097}'.format(1) }}",
        "{{ '{:{}}'.format(1, 2000000000) }}",
        "{{ '{:*}'.format(1, 2000000000) }}",
        "{{ '%*d'|format(2000000000, 1) }}",
        "{{ '%4000000000d'|format(1) }}",
        "{{ '%.100000f'|format(1) }}",
        "{{ '%.2000000000e'|format(1.5) }}",
        "{{ ['%4000000000d']|map('format', 1)|list }}",
        // Keys that the template engine would break off within.
        "{{ '{a[é]}'.format(a={}) }}",
        "{{ '%(é)s'|format({'é': 1}) }}",
    ] {
        let fault = run(source).unwrap_err();
        assert!(matches!(fault, F::Failed { .. }), "{source}: {fault:?}");
    }
    for source in [
        "{{ ('{0:4096}' * 1000000).format(1) }}",
        "{{ ('{0}' * 1000000).format('x' * 1000000) }}",
        "{{ ('{0[a]}' * 1000000).format({'a': ['x' * 1000000]}) }}",
        "{{ ('%(a)s' * 1000000)|format({'a': 'x' * 1000000}) }}",
    ] {
        assert_eq!(run(source).unwrap_err(), F::OutOfFuel, "{source}");
    }
}

/// Formats of all sorts of parts, wrong ones too: none may end its thread.
#[test]
fn no_format_panics() {
    let parts = [
        "{", "}", "{{", "}}", "%", "%%", "(", ")", "[", "]", ":", ".", "0", "7", "99", "é", "<",
        "^", ">", "+", "-", " ", "#", ",", "_", "a", "b", "c", "d", "e", "f", "g", "s", "x", "X",
        "*",
    ];
    let mut state = 7u64;
    let mut below = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % n
    };
    for _ in 0..100 {
        let format: String = (0..1 + below(9)).map(|_| parts[below(parts.len())]).collect();
        for start in ["", "{:", "%", "{0[", "%("] {
            for args in ["1, 'é', -2.5, [true]", "{'a': 1.5e300, 'é': none}"] {
                for call in ["'.format(", "'|format("] {
                    let source = format!("{{{{ '{start}{format}{call}{args}) }}}}");
                    let fault = run(&source).err();
                    assert!(!matches!(fault, Some(TemplateFault::Thread(_))), "{source}");
                }
            }
        }
    }
}

/// Lists that hold one another many times: to write or to compare them takes work that
/// grows with the power of their levels, and no fuel.
#[test]
fn work_without_fuel_meets_a_deadline() {
    let levels = "{% set a = [a, a] %}{% set b = [b, b] %}".repeat(30);
    let source = format!("{{% set a = [1] %}}{{% set b = [1] %}}{levels}{{{{ a == b }}}}");
    let template = ChatTemplate::new(&source, None, None).unwrap();
    for most in [30, 2] {
        let start = Instant::now();
        let result = template.render(&[], &RenderOptions::default());
        assert!(matches!(result, Err(Error::Template(TemplateFault::OutOfFuel))), "{result:?}");
        assert!(start.elapsed() < Duration::from_secs(most), "{:?}", start.elapsed());
    }
    // To write them as JSON does take fuel, and each number its own.
    let json = source.replace("a == b", "a | tojson");
    assert_eq!(run(&json).unwrap_err(), TemplateFault::OutOfFuel);
}

#[test]
fn recursion_meets_a_limit() {
    for source in [
        "{% include 'chat' %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(x) %}{% for y in [x] %}{{ f([y]) | upper }}{% endfor %}{% endmacro %}{{ f(1) }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% macro f() %}{{ caller() }}{% call f() %}x{% endcall %}{% endmacro %}{% call f() %}{% endcall %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}",
        "{% set ns = namespace() %}{% for i in range(90000) %}{% set ns.x = ns %}{% endfor %}",
        "{% set a = namespace() %}{% set b = namespace() %}{% for i in range(90000) %}\
         {% set a.x, b.x = b, a %}{% endfor %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = {'k': ns.x} %}{% endfor %}",
        // Hidden between what only look like the ends of another tag.
        "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{# {% set ns.y = ' #}\
         {% set ns.x = [ns.x] %}{# ' %} #}{% endfor %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = ns | items %}{% endfor %}",
    ] {
        assert_eq!(run(source).unwrap_err(), TemplateFault::TooDeep, "{source}");
    }
    for part in ["-", "+1", "~x", " * 2", " / 2", " % 2"] {
        let source = format!("{{{{ x{} }}}}", part.repeat(5000));
        assert_eq!(run(&source).unwrap_err(), TemplateFault::TooDeep, "{part}");
    }
}

/// Cycles cannot be made: what an attribute is given is copied.
#[test]
fn a_namespace_holds_a_copy_of_another() {
    let source = "{% set ns = namespace(a=1) %}{% set ns.me = ns %}{{ ns }}{{ ns == ns.me }}{{ ns | tojson }}";
    let want = "{'a': 1, 'me': {'a': 1}}False{\"a\": 1, \"me\": {\"a\": 1}}";
    assert_eq!(run(source).unwrap(), want);

    // Nor through a macro that sees the namespace it is put in, or itself.
    let held =
        "{% macro f() %}{{ ns }}{{ f }}{% endmacro %}{% set ns = namespace() %}{% set ns.x = f %}";
    assert!(run(&format!("{held}{{{{ f() }}}}{{{{ ns | tojson }}}}{{{{ ns.x == f }}}}")).is_ok());
    assert!(matches!(run(&format!("{held}{{{{ ns.x() }}}}")), Err(TemplateFault::Failed { .. })));
    let function = "{% set ns = namespace() %}{% set ns.x = range %}";
    assert!(matches!(run(function), Err(TemplateFault::Failed { .. })));
}

/// The deepest values and expressions that source of the largest size can spell:
/// the stacks must hold them, whether there is a fault or not.
#[test]
fn the_deepest_that_source_can_build_does_not_overflow() {
    let room = (64 << 10) - 200;
    let fill = |part: &str| part.repeat(room / part.len());
    let nested: String = {
        let level = format!("{{% set x = {}x{} %}}", "[".repeat(60), "]".repeat(60));
        format!("{{% set x = 1 %}}{}", level.repeat(room / level.len()))
    };
    let mut sources: Vec<String> = [
        "{{ x }}",
        "{{ x | tojson }}",
        "{{ x ~ '' }}",
        "{{ x == [x] }}",
        "{{ [x, [x]] | unique | list | length }}",
        "{{ {x: 1} | length }}",
        "{{ [x, x] | sort | length }}",
        "{{ x in [[x]] }}",
        "{% set ns = namespace(x=1) %}{% set ns.x = x %}",
    ]
    .map(|end| format!("{nested}{end}"))
    .to_vec();
    for (open, part, close) in [
        ("{{ ", "-", "messages }}"),
        ("{{ ", "not ", "x }}"),
        ("{{ ", "(", "1"),
        ("{{ ", "[", "1"),
        ("{{ ", "1 if x else ", "1 }}"),
        ("{{ x", "+x", " }}"),
        ("{{ 1", "+1", " }}"),
        ("{{ x", "~x", " }}"),
        ("{{ x", "**x", " }}"),
        ("{{ x", "<x", " }}"),
        ("{{ x", " and x", " }}"),
        ("{{ x", "|e", " }}"),
        ("{{ x", ".a", " }}"),
        ("{{ x", "()", " }}"),
        ("{{ x", "[0]", " }}"),
        ("{{ x", " is e", " }}"),
        ("{% if x %}", "{%elif x%}", "{% endif %}"),
        ("", "{%if x%}", ""),
        ("", "{%for x in y%}", ""),
        ("{% set ", "(", ""),
        ("{% set ns.x = ", "-", "x %}"),
    ] {
        sources.push(format!("{open}{}{close}", fill(part)));
        // As long a run of operators as is allowed.
        sources.push(format!("{open}{}{close}", part.repeat(4000 / part.len())));
    }
    for source in sources {
        let _ = run(&source);
    }
}
