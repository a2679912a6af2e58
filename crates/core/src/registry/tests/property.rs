//! A rewritten table keeps every other byte; the broker's words are read, whatever they are.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::amqp::ids::ShortStr;
use crate::amqp::table::{Table, TableBuilder};
use crate::objects::Names;
use crate::registry::arguments::DeclareArguments;
use crate::registry::policy::pattern;
use crate::registry::refusal::{self, There};

/// Members of every kind, with names that matter, do not, and come twice.
fn tables() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![
        Just("x-dead-letter-exchange"),
        Just("x-dead-letter-routing-key"),
        Just("x-expires"),
        Just("x-max-length"),
        Just("x-other"),
    ];
    let member = (name, vec(any::<u8>(), 0..20), 0..4u8);
    vec(member, 0..8).prop_map(|members| {
        let mut table = TableBuilder::default();
        for (name, value, kind) in members {
            let name = name.as_bytes();
            match kind {
                0 => table.long(name, i64::from(value.len() as u8)),
                1 => table.boolean(name, value.is_empty()),
                _ => table.longstr(name, &value),
            };
        }
        table.finish()
    })
}

/// How refusals begin.
const HEADS: [&str; 4] = [
    "",
    "PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-exchange' for queue 'q' in vhost '/': received ",
    "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received the value '",
    "ACCESS_REFUSED - access to exchange 'dlx-proxy/",
];

/// The members, each as it is on the wire, without the first of `first` and all of `all`.
fn others<'a>(table: &'a [u8], first: &[u8], all: &[u8]) -> Vec<&'a [u8]> {
    let mut seen = false;
    let fields = Table(table).fields().map(Result::unwrap);
    let kept = fields.filter(|field| {
        let is_first = field.name == first && !seen;
        seen |= is_first;
        !is_first && field.name != all
    });
    kept.map(|field| field.raw).collect()
}

proptest! {
    #[test]
    fn a_rewritten_table_keeps_every_other_octet(table in tables()) {
        let intake = ShortStr::copy(b"dlx-proxy/x").unwrap();
        let rewritten = DeclareArguments::read(&table).rewritten(&intake);
        let (exchange, key): (&[u8], &[u8]) = (b"x-dead-letter-exchange", b"x-dead-letter-routing-key");
        prop_assert_eq!(others(&rewritten, exchange, key), others(&table, exchange, key));
        prop_assert_eq!(Table(&rewritten).get(key).unwrap(), None);
        let first = Table(&rewritten).get(exchange).unwrap().unwrap();
        prop_assert_eq!(first.as_longstr(), Some(intake.as_bytes()));
    }

    #[test]
    fn a_permission_probe_differs_in_expires_alone(table in tables()) {
        let probe = DeclareArguments::read(&table).permission_probe();
        prop_assert_eq!(others(&probe, b"x-expires", b""), others(&table, b"x-expires", b""));
        prop_assert_eq!(Table(&probe).get(b"x-expires").unwrap().unwrap().as_integer(), Some(-1));
    }

    #[test]
    fn a_table_that_cannot_be_read_stays_as_it_is(table in vec(any::<u8>(), 1..60)) {
        prop_assume!(Table(&table).check().is_err());
        let arguments = DeclareArguments::read(&table);
        prop_assert_eq!(arguments.rewritten(&ShortStr::EMPTY), table.clone());
        prop_assert_eq!(arguments.permission_probe(), table.clone());
    }

    /// Whatever a broker says, and whatever it is said of.
    #[test]
    fn any_words_are_read(
        code in prop_oneof![any::<u16>(), prop::sample::select(vec![403, 404, 405, 406, 530])],
        head in prop::sample::select(HEADS.to_vec()),
        said in vec(any::<u8>(), 0..200),
        table in tables(),
    ) {
        let (names, text) = (Names::default(), [head.as_bytes(), &said].concat());
        match refusal::there(code, &text, &DeclareArguments::read(&table), &names) {
            There::Ours(exchange) => prop_assert!(names.is_intake_exchange(&exchange)),
            There::Forbidden { .. } | There::MayWrite => prop_assert_eq!(code, 403),
            There::Unanswered => prop_assert_eq!(code, 404),
            There::Else => {}
            _ => prop_assert_eq!(code, 406),
        }
        if let Some(told) = refusal::decode_names_in(&text, &names) {
            prop_assert_ne!(told, text.clone(), "nothing is told anew");
        }
        let _ = (refusal::seen_with(code, &text, b"q", &names), refusal::difference(code, &text, b"q"));
        let _ = (refusal::refused_type(code, &text), refusal::ends_knowledge(code, &text));
        let _ = refusal::is_channel_limit(code, &text);
    }

    #[test]
    fn any_pattern_is_an_error_or_an_answer(text in any::<String>(), name in vec(any::<u8>(), 0..250)) {
        if let Ok(pattern) = pattern(&text) {
            let _ = pattern.is_match(&name);
        }
    }
}
