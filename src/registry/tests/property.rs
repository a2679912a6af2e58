//! Names are one to one; a rewritten table keeps every other octet.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::amqp::ids::ShortStr;
use crate::amqp::table::{Table, TableBuilder};
use crate::dead_letter::Target;
use crate::registry::arguments::DeclareArguments;
use crate::registry::declared_target::DeclaredTarget;
use crate::registry::intake_name::Names;
use crate::registry::policy::QueueType;

fn short(longest: usize) -> impl Strategy<Value = ShortStr> {
    vec(any::<u8>(), 0..=longest).prop_map(|octets| ShortStr::new(octets).unwrap())
}

fn intakes() -> impl Strategy<Value = DeclaredTarget> {
    prop_oneof![
        any::<bool>().prop_map(|at_least_once| DeclaredTarget::Policy { at_least_once }),
        (short(40), proptest::option::of(short(40)), any::<bool>()).prop_map(
            |(exchange, routing_key, at_least_once)| DeclaredTarget::Target(Target {
                exchange,
                routing_key,
                at_least_once
            })
        ),
    ]
}

/// Names near to ours.
fn names() -> impl Strategy<Value = Vec<u8>> {
    "dlx-proxy\\+?(/([a-z%/+ ']|%[0-9A-Fa-f]{2}){0,8}){0,3}".prop_map(String::into_bytes)
}

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
    fn a_name_says_what_it_was_made_of(intake in intakes(), quorum in any::<bool>()) {
        let names = Names::default();
        // Only a quorum queue has the strategy.
        let queue_type = match quorum || intake.at_least_once() {
            true => QueueType::Quorum,
            false => QueueType::Default,
        };
        if let Some(name) = names.encode(&intake, queue_type) {
            prop_assert!(name.iter().all(u8::is_ascii_graphic));
            prop_assert!(names.is_ours(&name));
            prop_assert_eq!(names.decode(&name), Some((intake, queue_type)));
        }
    }

    #[test]
    fn only_names_that_we_would_write_are_read(name in names()) {
        let ours = Names::default();
        if let Some((intake, queue_type)) = ours.decode(&name) {
            prop_assert_eq!(ours.encode(&intake, queue_type), ShortStr::copy(&name));
            prop_assert!(ours.is_ours(&name));
        }
    }

    #[test]
    fn the_name_of_a_delay_queue_says_its_delay(millis in any::<u64>()) {
        let names = Names::default();
        prop_assert_eq!(names.delay_of(&names.delay_queue(millis)), Some(millis));
        for other in ["", "0", "+", "-", "x"] {
            let name = format!("dlx-proxy.delay.{other}{millis}");
            prop_assert_eq!(names.delay_of(name.as_bytes()).is_some(), other.is_empty());
        }
        prop_assert_eq!(names.delay_of(b"dlx-proxy.delay"), None);
    }

    #[test]
    fn any_octets_are_read_as_a_name(name in vec(any::<u8>(), 0..300)) {
        Names::default().decode(&name);
        Names::default().is_ours(&name);
    }

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
}
