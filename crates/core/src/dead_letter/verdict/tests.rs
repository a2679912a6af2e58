use super::*;
use crate::amqp::table::ArrayBuilder;
use crate::dead_letter::hex;

fn arguments(build: impl FnOnce(&mut TableBuilder) -> &mut TableBuilder) -> Vec<u8> {
    let mut table = TableBuilder::default();
    build(&mut table);
    table.finish()
}

fn read(build: impl FnOnce(&mut TableBuilder) -> &mut TableBuilder) -> (Verdict, Option<Unused>) {
    Verdict::read(&arguments(build))
}

/// The names and texts of its headers.
fn headers(verdict: &Verdict) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let fields = Table(&verdict.headers).fields().map(Result::unwrap);
    let shown = |value: Value<'_>| {
        value
            .as_text()
            .map_or_else(|| hex::digits(value.data), text)
    };
    fields
        .map(|field| (text(field.name), shown(field.value)))
        .collect()
}

fn value(tag: u8, data: &[u8]) -> Value<'_> {
    Value { tag, data }
}

#[test]
fn each_argument_is_read_and_one_that_cannot_be_used_is_left_out() {
    use Unused::{HeaderRefused, Malformed};
    let (verdict, unused) = read(|table| {
        let inner = arguments(|inner| inner.longstr(b"tenant", b"7"));
        table
            .longstr(b"reason", b"no address")
            .longstr(b"error", b"line 1\nline 2")
            .long(b"delay-ms", 1500)
            .boolean(b"dead", true)
            .value(b"headers", &value(b'F', &inner))
            .longstr(b"later", b"unknown arguments are no mistake")
    });
    assert_eq!(
        (verdict.delay, verdict.dies, unused),
        (Some(Duration::from_millis(1500)), true, None)
    );
    let said = [
        ("x-exception-message", "no address"),
        ("x-exception-stacktrace", "line 1\nline 2"),
        ("tenant", "7"),
    ];
    let said = said.map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(headers(&verdict), said);

    let week = Some(LONGEST_DELAY);
    let long = |number: i64| number.to_be_bytes();
    for (name, tag, data, time, dies, unused) in [
        (
            "delay-ms",
            b'l',
            &long(1)[..],
            Some(Duration::from_millis(1)),
            false,
            None,
        ),
        (
            "delay-ms",
            b'b',
            &[5],
            Some(Duration::from_millis(5)),
            false,
            None,
        ),
        ("delay-ms", b'l', &long(i64::MAX), week, false, None),
        ("delay-ms", b'l', &long(0), None, false, Some(Malformed)),
        ("delay-ms", b'l', &long(-1), None, false, Some(Malformed)),
        ("delay-ms", b'S', b"10", None, false, Some(Malformed)),
        ("delay-ms", b'V', b"", None, false, None),
        ("extend-ms", b'l', &long(i64::MAX), week, false, None),
        ("extend-ms", b'l', &long(0), None, false, Some(Malformed)),
        ("dead", b't', &[0], None, false, None),
        ("dead", b't', &[1], None, true, None),
        ("dead", b'l', &long(1), None, false, Some(Malformed)),
        ("dead", b'V', b"", None, false, None),
        ("reason", b'l', &long(1), None, false, Some(Malformed)),
        ("error", b't', &[1], None, false, Some(Malformed)),
        ("headers", b'S', b"a", None, false, Some(Malformed)),
        ("headers", b'F', b"\x01aZ", None, false, Some(Malformed)),
        (
            "headers",
            b'F',
            b"\x07x-deathV",
            None,
            false,
            Some(HeaderRefused),
        ),
    ] {
        let read = read(|table| table.value(name.as_bytes(), &value(tag, data)));
        let expected = Verdict {
            delay: time.filter(|_| name == "delay-ms"),
            dies,
            extension: time.filter(|_| name == "extend-ms"),
            headers: Vec::new(),
        };
        assert_eq!(read, (expected, unused), "{name} {tag} {data:?}");
    }
    assert_eq!(
        Verdict::read(b"\x06reasonZ"),
        (Verdict::default(), Some(Malformed))
    );
}

#[test]
fn a_text_is_cut_between_two_characters() {
    for (before, kept) in [
        (LONGEST_TEXT - 1, LONGEST_TEXT - 1),
        (LONGEST_TEXT - 2, LONGEST_TEXT),
    ] {
        let text = "a".repeat(before) + "öö";
        let (verdict, unused) = read(|table| table.longstr(b"error", text.as_bytes()));
        let said = headers(&verdict);
        assert_eq!((said[0].1.as_str(), unused), (&text[..kept], None));
    }
    // What is no text at all is cut, too.
    assert_eq!(cut(&[0x80; 5000]), b"");
    assert_eq!(cut(&[b'a'; LONGEST_TEXT]).len(), LONGEST_TEXT);
}

#[test]
fn only_headers_that_a_client_may_set_and_the_broker_can_read_are_taken() {
    use Unused::{HeaderRefused, Malformed};
    let deep = (0..20).fold(Vec::new(), |inner, _| {
        arguments(|table| table.value(b"t", &value(b'F', &inner)))
    });
    let list = {
        let mut list = ArrayBuilder::default();
        list.longstr(b"one")
            .value(&value(b'd', &f64::INFINITY.to_be_bytes()));
        list.finish()
    };
    for (name, tag, data, unused) in [
        ("x-death", b'S', &b"a"[..], Some(HeaderRefused)),
        ("x-first-death-queue", b'S', b"a", Some(HeaderRefused)),
        ("x-delivery-count", b'S', b"a", Some(HeaderRefused)),
        ("x-dlx-proxy-retry", b'S', b"a", Some(HeaderRefused)),
        ("x-dlx-proxy", b'S', b"a", Some(HeaderRefused)),
        ("x-rejected-by", b'S', b"a", Some(HeaderRefused)),
        ("x-opt-delivery-time", b'S', b"a", Some(HeaderRefused)),
        ("CC", b'S', b"a", Some(HeaderRefused)),
        ("BCC", b'S', b"a", Some(HeaderRefused)),
        ("a", b'S', b"a", None),
        ("a", b'd', &0.5f64.to_be_bytes(), None),
        ("a", b'd', &f64::NAN.to_be_bytes(), Some(Malformed)),
        ("a", b'f', &f32::NEG_INFINITY.to_be_bytes(), Some(Malformed)),
        ("a", b'F', &arguments(|table| table.void(b"in")), None),
        ("a", b'F', b"\x01aZ", Some(Malformed)),
        ("a", b'A', b"Z", Some(Malformed)),
        ("a", b'A', &list, Some(Malformed)),
        ("a", b'F', &deep, Some(Malformed)),
    ] {
        let inner = arguments(|table| {
            table
                .value(name.as_bytes(), &value(tag, data))
                .longstr(b"other", b"stays")
        });
        let (verdict, said) = read(|table| table.value(b"headers", &value(b'F', &inner)));
        assert_eq!(said, unused, "{name} {tag}");
        assert_eq!(
            headers(&verdict).len(),
            1 + usize::from(unused.is_none()),
            "{name} {tag}"
        );
    }
}

#[test]
fn of_headers_with_one_name_the_first_counts_and_of_many_some() {
    let many = arguments(|table| {
        table.longstr(b"a", b"first").longstr(b"a", b"second");
        table.longstr(b"x-exception-message", b"not the reason");
        for number in 0..MOST_HEADERS {
            table.longstr(number.to_string().as_bytes(), b"");
        }
        table
    });
    let (verdict, unused) = read(|table| {
        table
            .longstr(b"reason", b"the reason")
            .value(b"headers", &value(b'F', &many))
    });
    let said = headers(&verdict);
    assert_eq!(unused, Some(Unused::HeaderRefused));
    assert_eq!(said[0].1, "the reason");
    assert_eq!(said[1], ("a".to_owned(), "first".to_owned()));
    assert_eq!(said.len(), 2 + MOST_HEADERS - 3);
}

#[test]
fn the_headers_replace_those_of_an_earlier_verdict_and_spare_the_others() {
    let content = |table: Vec<u8>| {
        let properties = Properties::parse(&[0, 0]).expect("none");
        Content {
            properties: properties.with_headers(table),
            body: "hi".into(),
        }
    };
    let first = read(|table| {
        let inner = arguments(|inner| inner.longstr(b"tenant", b"7"));
        table
            .longstr(b"reason", b"once")
            .longstr(b"error", b"a trace")
            .value(b"headers", &value(b'F', &inner))
    });
    let own = arguments(|table| table.longstr(b"own", b"1"));
    let judged = first.0.on(&content(own)).expect("a change");
    let told = |of: &Content| {
        let properties = Properties::parse(&of.properties).expect("sound");
        headers(&Verdict {
            headers: properties.headers().expect("some").to_vec(),
            ..Verdict::default()
        })
    };
    let names = |of: &Content| {
        told(of)
            .into_iter()
            .map(|(name, _)| name)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names(&judged),
        [
            "own",
            "x-exception-message",
            "x-exception-stacktrace",
            "tenant"
        ]
    );
    let (second, _) = read(|table| table.longstr(b"reason", b"twice"));
    let judged = second.on(&judged).expect("a change");
    assert_eq!(names(&judged), ["own", "x-exception-message", "tenant"]);
    assert_eq!(told(&judged)[1].1, "twice");
    // One that says nothing of them leaves them.
    let (third, _) = read(|table| table.long(b"delay-ms", 5));
    assert_eq!(third.on(&judged), None);
    let unread = Content {
        properties: vec![0xFF].into(),
        body: "hi".into(),
    };
    assert_eq!(second.on(&unread), None);
}
