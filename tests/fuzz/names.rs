//! Names of the proxy's own exchanges and queues, above all of intake exchanges: what is encoded is decoded again, and what is decoded is what we would write.

use dlx_proxy::amqp::ids::ShortStr;
use dlx_proxy::dead_letter::Target;
use dlx_proxy::objects::{DeclaredTarget, Names, OwnObject, QueueType};

use super::input::Input;

/// Slow and obvious: unreadable octets, quotes, blanks, `/` and `%` are two upper-case digits behind a `%`.
fn escaped(part: &[u8]) -> String {
    let octets = part.iter().map(|octet| match octet {
        b' ' | b'/' | b'%' | b'\'' | 0..=31 | 127.. => format!("%{octet:02X}"),
        _ => char::from(*octet).to_string(),
    });
    octets.collect()
}

fn reference(prefix: &str, intake: &DeclaredTarget, queue_type: QueueType) -> String {
    let pluses = match (intake.at_least_once(), queue_type) {
        (true, _) => "++",
        (false, QueueType::Quorum) => "+",
        (false, _) => "",
    };
    let mut name = format!("{prefix}{pluses}");
    if let DeclaredTarget::Target(target) = intake {
        name += &format!("/{}", escaped(&target.exchange));
        if let Some(key) = &target.routing_key {
            name += &format!("/{}", escaped(key));
        }
    }
    name
}

fn drawn(input: &mut Input<'_>) -> DeclaredTarget {
    let (kind, at_least_once) = (input.below(4), input.flag());
    if kind == 0 {
        return DeclaredTarget::Policy { at_least_once };
    }
    let mut name = || ShortStr::copy(input.text()).expect("short");
    DeclaredTarget::Target(Target {
        exchange: name(),
        routing_key: (kind > 1).then(name),
        at_least_once,
    })
}

fn encode(names: &Names, prefix: &str, intake: &DeclaredTarget, queue_type: QueueType) {
    let expected = reference(prefix, intake, queue_type);
    let object = OwnObject::intake_exchange(intake, queue_type);
    let Some(name) = names.name(&object) else {
        return assert!(expected.len() > 255, "there was room");
    };
    assert_eq!(&*name, expected.as_bytes());
    // The name tells of the type only what policies and strategies need.
    let told = match (intake.at_least_once(), queue_type) {
        (true, _) | (_, QueueType::Quorum) => QueueType::Quorum,
        _ => QueueType::Default,
    };
    assert_eq!(object, OwnObject::IntakeExchange(intake.clone(), told));
    assert_eq!(names.parse(&name), Some(object));
    assert!(names.is_ours(&name));
    let broken: Vec<u8> = name
        .iter()
        .flat_map(|octet| [b'\r', *octet, b'\n'])
        .collect();
    assert!(names.is_ours(&broken), "the broker takes line breaks away");
}

/// Whatever it is: it is refused, or it is as we write it, and then a client may not use it.
fn decode(names: &Names, name: &[u8]) {
    if let Some(object) = names.parse(name) {
        assert_eq!(names.name(&object).as_deref(), Some(name));
        assert!(names.is_ours(name));
    }
}

pub(crate) fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let (what, types) = (input.below(4), input.byte());
    let chosen = std::str::from_utf8(input.bytes(usize::from(types >> 4))).unwrap_or("'");
    let (prefix, names) = match Names::new(chosen) {
        Ok(names) => (chosen, names),
        Err(_) => ("dlx-proxy", Names::default()),
    };
    assert!(names.is_ours(names.intake_queue()) && names.is_ours(names.parking()));
    let all = [
        QueueType::Default,
        QueueType::Classic,
        QueueType::Quorum,
        QueueType::Other,
    ];
    let queue_type = all[usize::from(types) % 4];
    match what {
        0 => encode(&names, prefix, &drawn(&mut input), queue_type),
        1 => decode(&names, input.rest()),
        2 => {
            let name = reference(prefix, &drawn(&mut input), queue_type);
            decode(&names, &[name.as_bytes(), input.rest()].concat());
        }
        _ => {
            // A name with something changed in the middle of it.
            let name = reference(prefix, &drawn(&mut input), queue_type);
            let (before, behind) = name.as_bytes().split_at(input.below(name.len()));
            decode(&names, &[before, input.text(), behind].concat());
            if let Some(bridge) = names.name(&OwnObject::Bridge(before)) {
                assert_eq!(names.bridges().behind(&bridge), before);
                assert!(names.is_ours(&bridge));
            }
        }
    }
}
