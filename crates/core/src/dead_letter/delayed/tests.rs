use super::*;
use crate::amqp::ids::name;
use crate::amqp::table::TableBuilder;
use crate::dead_letter::{Dialect, Disposal, HistoryForm, Lookup, come_back};

const OWN: &[u8] = b"the-proxy";
const START: Wall = Wall(1_700_000_000_000);

fn rules() -> Rules {
    Rules {
        dialect: Dialect::V4,
        max_history: 256,
        continue_history: true,
        history_form: HistoryForm::WRITTEN,
        stamp: false,
    }
}

/// Flags and headers.
fn properties(headers: &TableBuilder) -> Vec<u8> {
    let mut out = vec![0x20, 0];
    let table = headers.as_table().0;
    out.extend_from_slice(&(table.len() as u32).to_be_bytes());
    out.extend_from_slice(table);
    out
}

fn with(tag: u8, data: &[u8]) -> Vec<u8> {
    let mut headers = TableBuilder::default();
    headers.value(X_DELAY, &Value { tag, data });
    properties(&headers)
}

#[test]
fn a_delay_is_read_as_the_plugin_does() {
    let ms = |millis| Asked::Delay(Duration::from_millis(millis));
    for (tag, data, expected) in [
        (b'I', &1i32.to_be_bytes()[..], ms(1)),
        (b'i', &u32::MAX.to_be_bytes(), ms(u64::from(u32::MAX))),
        (b'l', &(1i64 << 32).to_be_bytes(), Asked::AtOnce),
        (b'I', &0i32.to_be_bytes(), Asked::AtOnce),
        (b'I', &(-1i32).to_be_bytes(), Asked::AtOnce),
        (b'b', &[5], ms(5)),
        (b'S', b"700", ms(700)),
        (b'S', b"soon", Asked::AtOnce),
        (b'd', &1300.9f64.to_be_bytes(), ms(1300)),
        (b'f', &0.9f32.to_be_bytes(), Asked::AtOnce),
        (b't', &[1], Asked::AtOnce),
        (b'T', &5u64.to_be_bytes(), Asked::AtOnce),
    ] {
        let properties = with(tag, data);
        assert_eq!(
            Asked::read(&properties, true, true, START),
            expected,
            "{tag} {data:?}"
        );
        assert_eq!(Asked::read(&properties, false, true, START), Asked::AtOnce);
    }
}

#[test]
fn a_delivery_time_counts_where_it_is_switched_on() {
    for (millis, expected) in [
        (START.0 + 5, Asked::Delay(Duration::from_millis(5))),
        (START.0, Asked::AtOnce),
        (0, Asked::AtOnce),
        (START.0 + 101 * 365 * 86_400_000, Asked::TooFar),
    ] {
        let mut headers = TableBuilder::default();
        headers.long(delivery_time::NAME, millis as i64);
        let properties = properties(&headers);
        assert_eq!(Asked::read(&properties, true, true, START), expected);
        assert_eq!(Asked::read(&properties, true, false, START), Asked::AtOnce);
    }
}

/// Never early, and late by no more than a part of the delay.
#[test]
fn the_hops_of_a_delay_are_few_and_not_much_too_long() {
    let day = 86_400_000;
    let some = (1..3000).chain((3000..60 * day).step_by(7_654_321));
    for millis in some.chain([u64::from(u32::MAX)]) {
        let delay = Duration::from_millis(millis);
        let (mut waited, mut hops) = (Duration::ZERO, 0);
        while waited < delay {
            waited += hop(delay, delay - waited);
            hops += 1;
        }
        assert!(
            waited - delay <= LATE.max(delay / LATE_PART),
            "{delay:?}: {waited:?}"
        );
        assert!(hops <= 12, "{delay:?}: {hops}");
    }
}

fn came_back(content: &Content, now: Wall) -> Option<CameBack> {
    come_back(
        content,
        &rules(),
        OWN,
        |_| false,
        |_| None,
        |_| Lookup::Unknown,
        now,
    )
}

fn waiting(headers: &TableBuilder, delay: Duration) -> Publication {
    let content = Content {
        properties: properties(headers).into(),
        body: "a body".into(),
    };
    let delayed = Delayed {
        exchange: &name("to"),
        routing_key: &name("key"),
        content: &content,
        delay,
    };
    delayed.publication(&rules(), OWN, START).expect("readable")
}

#[test]
fn it_comes_out_as_it_was_with_its_delay_negated() {
    let mut headers = TableBuilder::default();
    headers.long(X_DELAY, 4400).longstr(b"mine", b"kept");
    headers.longstr(b"x-dlx-proxy-retry", b"forged");
    let mut cc = crate::amqp::table::ArrayBuilder::default();
    cc.longstr(b"copy");
    headers.array(b"CC", &cc);
    let sent = waiting(&headers, Duration::from_millis(4400));
    assert_eq!(sent.purpose, Purpose::Delay(Duration::from_secs(4)));
    // Not yet: another delay for the rest.
    let first = came_back(&sent.content, START.after(Duration::from_millis(4050)));
    let Some(Disposal::Retry(again)) = first.map(|of| of.disposal) else {
        panic!("the rest is left")
    };
    assert_eq!(again.purpose, Purpose::Delay(Duration::from_millis(350)));
    let due = came_back(&again.content, START.after(Duration::from_millis(4401)));
    let Some(Disposal::Publish(due)) = due.map(|of| of.disposal) else {
        panic!("it is due")
    };
    assert_eq!(
        (&*due.exchange, &*due.routing_key),
        (&b"to"[..], &b"key"[..])
    );
    assert_eq!(due.purpose, Purpose::Publish);
    let parsed = Properties::parse(&due.content.properties).expect("sound");
    let table = Table(parsed.headers().expect("headers"));
    let value = |name: &[u8]| table.get(name).expect("sound");
    assert_eq!(value(X_DELAY).and_then(Value::as_integer), Some(-4400));
    assert_eq!(value(X_DELAY).map(|value| value.tag), Some(b'I'));
    assert!(value(b"CC").is_some() && value(b"mine").is_some());
    assert!(value(private::RETRY).is_none() && value(private::USER_ID).is_none());
    assert_eq!(parsed.get(Property::UserId), None);
}

#[test]
fn without_the_proof_it_names_no_exchange() {
    let sent = waiting(&TableBuilder::default(), Duration::from_secs(1));
    let parsed = Properties::parse(&sent.content.properties).expect("sound");
    let forged = parsed.edit(&crate::amqp::properties::Edit {
        user_id: crate::amqp::properties::Change::Set(b"a-client".to_vec()),
        ..Default::default()
    });
    let forged = sent.content.with_properties(forged);
    assert_eq!(
        came_back(&forged, START.after(Duration::from_secs(2))),
        None
    );
}
