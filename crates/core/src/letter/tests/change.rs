//! What an edit may say, and how it is read.

use crate::amqp::table::Table;
use crate::letter::Change;

/// Each new header, its type and its octets; each that goes; the body.
fn read(json: &str) -> String {
    let edited = match Change::read(json.as_bytes()) {
        Ok(edited) => edited,
        Err(why) => return why.to_string(),
    };
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let set = Table(&edited.headers).fields().map(Result::unwrap);
    let set = set.map(|it| {
        format!(
            "{}={}:{}",
            text(it.name),
            it.value.kind(),
            text(it.value.data)
        )
    });
    let removed = edited.removed.iter().map(|name| format!("-{name}"));
    let body = edited
        .body
        .iter()
        .map(|body| format!("body {}", text(body)));
    set.chain(removed).chain(body).collect::<Vec<_>>().join(" ")
}

#[test]
fn an_edit_is_read_as_it_is_shown() {
    let header = |kind: &str, value: &str| {
        format!(r#"{{"headers":[{{"name":"h","type":"{kind}","value":{value}}}]}}"#)
    };
    let value =
        "header `h`: that value is none of its type, or no value of that type can be edited";
    let rows = [
        (
            r#"{"body":{"encoding":"json","text":"{}"}}"#.to_owned(),
            "body {}",
        ),
        (
            r#"{"body":{"encoding":"hex","text":"00fF","cut":false},"remove":["a"]}"#.to_owned(),
            r"-a body \x00\xff",
        ),
        (header("longstr", r#""ä\n""#), r"h=longstr:\xc3\xa4\n"),
        (header("longstr", "7"), "h=longstr:7"),
        (
            header("long", "7"),
            r"h=long:\x00\x00\x00\x00\x00\x00\x00\x07",
        ),
        (
            header("signedint", r#""-1""#),
            r"h=signedint:\xff\xff\xff\xff",
        ),
        (
            header("double", "0.5"),
            r"h=double:?\xe0\x00\x00\x00\x00\x00\x00",
        ),
        (header("bool", "true"), r"h=bool:\x01"),
        (header("void", "null"), "h=void:"),
        (header("timestamp", "200"), value),
        (header("bool", "1"), value),
        (header("longstr", "null"), value),
        (header("table", "{}"), value),
        (header("nothing", r#""a""#), value),
        (
            r#"{"body":{"encoding":"text","text":"a","cut":true}}"#.to_owned(),
            "`body` is cut: leave it out to keep the whole body, or send all of the new one",
        ),
        (
            r#"{"body":{"encoding":"hex","text":"0"}}"#.to_owned(),
            "`body` is not written in hexadecimal digits",
        ),
        (
            "{}".to_owned(),
            "it changes nothing: a redrive sends a message back as it is",
        ),
        (
            r#"{"remove":[""]}"#.to_owned(),
            "a header's name has 1 to 255 bytes",
        ),
        (
            format!(r#"{{"remove":["{}"]}}"#, "n".repeat(256)),
            "a header's name has 1 to 255 bytes",
        ),
    ];
    for (json, expected) in rows {
        assert_eq!(read(&json), expected, "{json}");
    }
    for json in [
        "",
        "[]",
        r#"{"user-id":"eve"}"#,
        r#"{"headers":[{"name":"h"}]}"#,
    ] {
        let why = read(json);
        assert!(why.starts_with("this is no edit: "), "{why}");
    }
    let kept = "x-death x-first-death-queue x-last-death-reason x-dlx-proxy-retry x-dlx-proxy-edited CC BCC x-delivery-count x-parked-cause x-rejected-by x-opt-delivery-time";
    for name in kept.split(' ') {
        let why =
            format!("header `{name}` belongs to the proxy or to RabbitMQ: it cannot be edited");
        assert_eq!(read(&format!(r#"{{"remove":["{name}"]}}"#)), why);
        let set = header("longstr", r#""a""#).replace("\"h\"", &format!("\"{name}\""));
        assert_eq!(read(&set), why);
    }
}
