//! All rows of the table of declares, as `testdata/declares.txt` shows them. `UPDATE=1` rewrites it; a human reads the diff.

use std::fmt::Debug;
use std::path::Path;

use crate::amqp::ids::ShortStr;
use crate::registry::arguments::Aim;
use crate::registry::refusal::There;

use super::table::{Case, Form, Stage, Step, Then};

const FORMS: [Form; 7] = [
    Form::AsItIs,
    Form::Passive,
    Form::IfThere,
    Form::Never,
    Form::Rewritten,
    Form::AsTheQueue,
    Form::MayWrite,
];
static THERE: [There; 14] = [
    There::Fits,
    There::Absent,
    There::Granted,
    There::Invalid,
    There::InvalidTarget,
    There::Ours(ShortStr::EMPTY),
    There::OursOtherwise,
    There::OtherExchange,
    There::Otherwise,
    There::Forbidden { intake: true },
    There::Forbidden { intake: false },
    There::MayWrite,
    There::Unanswered,
    There::Else,
];

/// A possible value of a fact, and what sets it.
type Value = (String, Box<dyn Fn(&mut Case)>);
/// A fact with its possible values.
type Fact = (&'static str, Vec<Value>);

fn fact<V: Copy + Debug + 'static>(
    name: &'static str,
    values: &[V],
    set: fn(&mut Case, V),
) -> Fact {
    let value = |value: &V| -> Value {
        let value = *value;
        let shown = format!("{value:?}").to_lowercase();
        (shown, Box::new(move |facts| set(facts, value)))
    };
    (name, values.iter().map(value).collect())
}

fn facts() -> Vec<Fact> {
    let both = [false, true];
    vec![
        fact(
            "aim",
            &[Aim::Full, Aim::Lenient, Aim::Off, Aim::Compare],
            |of, aim| of.aim = aim,
        ),
        fact("permitted", &both, |of, is| of.permitted = is),
        fact("ensured", &[None, Some(true), Some(false)], |of, is| {
            of.ensured = is
        }),
        fact("to be named", &both, |of, is| of.to_be_named = is),
        fact("names an exchange", &both, |of, is| of.names_exchange = is),
        fact("compared", &[0, 1, 2], |of, times| of.compared = times),
        fact("is ours", &both, |of, is| of.is_ours = is),
    ]
}

/// Next step, with only those facts that make a difference.
fn rows(left: &[Fact], of: Case, next: &dyn Fn(&Case) -> Step) -> Vec<(String, Step)> {
    let Some(((name, values), left)) = left.split_first() else {
        return vec![(String::new(), next(&of))];
    };
    let mut groups: Vec<(String, Vec<(String, Step)>)> = Vec::new();
    for (value, set) in values {
        let mut of = of;
        set(&mut of);
        let found = rows(left, of, next);
        match groups.iter_mut().find(|(_, rows)| *rows == found) {
            Some((values, _)) => *values = format!("{values}|{value}"),
            None => groups.push((value.clone(), found)),
        }
    }
    if let [(_, rows)] = &mut groups[..] {
        return std::mem::take(rows);
    }
    let prefixed = groups.into_iter().flat_map(|(values, rows)| {
        let row = move |(facts, step)| (format!(" {name}={values}{facts}"), step);
        rows.into_iter().map(row)
    });
    prefixed.collect()
}

const HEAD: &str = "\
# Declares: what is there × what is wanted → what comes next. Made from session/declares/table.rs: UPDATE=1 cargo test -p dlx-core declares
#
# The words are those of the enums there: forms, what is there, steps. Only facts that make a difference stand in a row.
";

#[test]
fn all_rows_are_as_the_table_shows() {
    let of = UNKNOWN;
    let facts = facts();
    let mut table = HEAD.to_owned();
    let mut put = |when: String, next: &dyn Fn(&Case) -> Step| {
        table += &format!("\n{when}\n");
        for (facts, step) in rows(&facts, of, next) {
            table += &format!("  {:70} {step:?}\n", facts.trim_start());
        }
    };
    put("the channel is quiet".into(), &Case::begin);
    for form in FORMS {
        // The broker's answers that lead to the same stand together.
        let mut answers: Vec<(String, &There)> = Vec::new();
        for there in &THERE {
            let shown = match there {
                There::Ours(_) => "Ours".to_owned(),
                there => format!("{there:?}"),
            };
            let found = rows(&facts, of, &|of| of.told(form, there));
            let same = |(_, other): &&mut (String, &There)| {
                rows(&facts, of, &|of| of.told(form, other)) == found
            };
            match answers.iter_mut().find(same) {
                Some((all, _)) => *all = format!("{all} | {shown}"),
                None => answers.push((shown, there)),
            }
        }
        for (shown, there) in answers {
            put(format!("{form:?}: {shown}"), &|of| of.told(form, there));
        }
    }
    for then in [Then::Make, Then::Forward] {
        put(format!("intake exchange asked for, to {then:?}"), &|of| {
            of.ready(then)
        });
    }
    put("recorded".into(), &Case::recorded);
    for form in [Form::Rewritten, Form::IfThere] {
        put(format!("too late: {form:?}"), &|of| {
            of.too_late(Stage::Asked(form))
        });
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/session/testdata/declares.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    assert_eq!(table, std::fs::read_to_string(path).unwrap());
}

/// For all facts: a form that makes a taken-over queue needs the permission and the exchange.
#[test]
fn what_is_unknown_never_makes_a_queue_of_ours() {
    for form in FORMS {
        for (_, step) in rows(&facts(), UNKNOWN, &|of| of.told(form, &There::Else)) {
            assert!(
                matches!(
                    step,
                    Step::AsItIs(_) | Step::Ask(Form::IfThere) | Step::Forward(Form::AsTheQueue)
                ),
                "{form:?}: {step:?}"
            );
        }
    }
    let may_make = |permitted, ensured| {
        Case {
            permitted,
            ensured,
            ..UNKNOWN
        }
        .may_make()
    };
    assert!(may_make(true, Some(true)));
    assert!(!may_make(true, None) && !may_make(true, Some(false)) && !may_make(false, Some(true)));
}

const UNKNOWN: Case = Case {
    aim: Aim::Full,
    to_be_named: false,
    names_exchange: false,
    permitted: false,
    ensured: None,
    compared: 0,
    is_ours: false,
};
