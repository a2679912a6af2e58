//! Edits of header tables and arguments: what is named changes as a slow and obvious editor changes it, all else is the same octets in the
//! same order.

use bytes::Bytes;

use dlx_proxy::amqp::content::Content;
use dlx_proxy::amqp::ids::ShortStr;
use dlx_proxy::amqp::properties::{Change, Edit, Properties, Property};
use dlx_proxy::dead_letter::proof::{self, Original, PARKED_CAUSE, PARKED_EXCHANGE, Parked};
use dlx_proxy::dead_letter::{Bridges, Dialect, Rules, private};
use dlx_proxy::registry::arguments::DeclareArguments;

use super::input::Input;
use super::reference::{self, Member, get, raw};

type Members = Vec<Member<'static>>;

/// Names that somebody cares for, and some that look like them.
const NAMES: &[&[u8]] = &[
    b"x-death",
    b"x-first-death-reason",
    b"x-first-death-queue",
    b"x-first-death-exchange",
    b"x-last-death-exchange",
    b"CC",
    b"BCC",
    private::HISTORY,
    private::BCC,
    private::LAP,
    private::USER_ID,
    private::CC,
    PARKED_EXCHANGE,
    PARKED_CAUSE,
    b"x-dlx-proxy-",
    b"x-dlx-proxy",
    b"x-dead-letter-exchange",
    b"x-dead-letter-routing-key",
    b"x-dead-letter-strategy",
    b"x-queue-type",
    b"x-expires",
    b"exchange",
    b"",
];

/// The proxy's own user.
const OWN: &[u8] = b"own";
const BRIDGE: &[u8] = b"dlx-proxy.bridge/";

/// A table of such members. Nested ones are tables and arrays of the same kind.
fn drawn(input: &mut Input<'_>, depth: usize) -> Members {
    let mut members = Vec::new();
    for _ in 0..input.below(6) {
        let name = match input.byte() {
            255 => input.text(),
            other => NAMES[usize::from(other) % NAMES.len()],
        };
        let (tag, data) = value(input, depth);
        members.push(Member::new(name, tag, &data));
    }
    members
}

fn value(input: &mut Input<'_>, depth: usize) -> (u8, Vec<u8>) {
    let kind = input.below(8);
    match kind {
        0 if depth > 0 => (b'F', raw(&drawn(input, depth - 1))),
        1 if depth > 0 => {
            let mut members = Vec::new();
            for _ in 0..input.below(4) {
                let (tag, data) = value(input, depth - 1);
                members.extend_from_slice(&Member::nameless(tag, &data).raw);
            }
            (b'A', members)
        }
        2 => (b'l', input.longlong().to_be_bytes().to_vec()),
        3 => (b'V', Vec::new()),
        4 => (b't', vec![input.byte()]),
        5 => (b'S', [BRIDGE, input.bytes(3)].concat()),
        6 => (input.byte(), input.text().to_vec()),
        _ => (b'S', input.text().to_vec()),
    }
}

/// Sets members by name: in the place of the first of the name, else at the end. Then removes all whose name `rejects-only` refuses, but those.
fn edited(members: &Members, sets: &Members, keep: impl Fn(&[u8]) -> bool) -> Members {
    let mut out = Members::new();
    let mut left = sets.clone();
    for member in members {
        match left.iter().position(|set| set.name == member.name) {
            Some(at) => out.push(left.remove(at)),
            None if keep(&member.name) => out.push(member.clone()),
            None => {}
        }
    }
    out.extend(left);
    out
}

fn longstrs(of: &Member<'_>) -> Option<Vec<Vec<u8>>> {
    if of.tag != b'A' {
        return Some(Vec::new());
    }
    let (members, sound) = reference::array(&of.data);
    let texts = members.iter().filter(|member| member.tag == b'S');
    sound.then(|| texts.map(|member| member.data.to_vec()).collect())
}

/// Properties with a header table and maybe a user-id.
fn properties(table: &[u8], user_id: Option<&[u8]>) -> Bytes {
    let empty = Properties::parse(&[0, 0]).expect("no properties");
    empty.edit(&Edit {
        headers: Change::Set(table.to_vec()),
        user_id: user_id.map_or(Change::Keep, |user| Change::Set(user.to_vec())),
        ..Edit::default()
    })
}

/// What an edit gives, or the same when it says that there is nothing to do: as members, and the user-id.
fn seen(edited: Option<Bytes>, before: &Bytes) -> (Vec<u8>, Option<Vec<u8>>) {
    let raw = edited.unwrap_or_else(|| before.clone());
    let parsed = Properties::parse(&raw).expect("an edit is sound");
    let user = parsed.get(Property::UserId).map(<[u8]>::to_vec);
    (parsed.headers().unwrap_or_default().to_vec(), user)
}

fn is_public(name: &[u8]) -> bool {
    !name.starts_with(b"x-dlx-proxy-")
}

fn publish(table: &[u8], members: &Members, sound: bool, input: &mut Input<'_>) {
    let rules = Rules {
        dialect: input.pick(&[Dialect::V3, Dialect::V3_13, Dialect::V4]),
        max_history: 256,
        continue_history: input.flag(),
        stamp: Default::default(),
    };
    let key = input.text();
    let before = properties(table, None);
    let done = private::on_publish(&before, key, &rules);
    let stripped = private::stripped(&before);
    if !sound {
        assert_eq!(done, None, "what is not sound is the broker's to refuse");
        assert_eq!(stripped, None);
        return;
    }
    let public = edited(members, &Members::new(), is_public);
    assert_eq!(seen(stripped, &before).0, raw(&public), "stripped");
    let bcc = get(members, b"BCC").map(longstrs);
    let deaths = get(members, b"x-death");
    let forget = rules.dialect == Dialect::V4 && !rules.continue_history;
    let remember = rules.continue_history && rules.dialect != Dialect::V3;
    let mut sets = Members::new();
    let Some(bcc) = bcc.unwrap_or(Some(Vec::new())) else {
        return assert_eq!(done, None, "an array that is not sound");
    };
    if !bcc.is_empty() {
        let keys = std::iter::once(key).chain(bcc.iter().map(|key| &key[..]));
        let keys: Vec<u8> = keys
            .flat_map(|key| Member::nameless(b'S', key).raw.to_vec())
            .collect();
        sets.push(Member::new(private::BCC, b'A', &keys));
    }
    if let Some(deaths) = deaths.filter(|_| remember) {
        let first = |name: &&Member<'_>| get(members, &name.name) == Some(*name);
        let copied = members.iter().enumerate().filter(|(at, member)| {
            let known = [
                &b"x-death"[..],
                b"x-first-death-reason",
                b"x-first-death-queue",
                b"x-first-death-exchange",
            ];
            known.contains(&&*member.name)
                && members.iter().position(|m| m.name == member.name) == Some(*at)
        });
        debug_assert!(first(&deaths));
        let copied: Vec<u8> = copied.flat_map(|(_, member)| member.raw.to_vec()).collect();
        sets.push(Member::new(private::HISTORY, b'F', &copied));
    }
    if let Some(deaths) = deaths.filter(|deaths| forget && deaths.tag == b'A') {
        let (entries, sound) = reference::array(&deaths.data);
        match entries.first() {
            Some(newest) => {
                let number = entries.len() + usize::from(!sound);
                let copied = [
                    Member::new(b"x-death", b'A', &newest.raw),
                    Member::long(b"forget", number as i64),
                ];
                sets.push(Member::new(private::HISTORY, b'F', &raw(&copied)));
            }
            None if !sound => return assert_eq!(done, None),
            None => {}
        }
    }
    let expected = edited(members, &sets, is_public);
    let (headers, _) = seen(done, &before);
    assert_eq!(headers, raw(&expected), "published");
}

fn delivery(table: &[u8], members: &Members, sound: bool, input: &mut Input<'_>) {
    let user = match input.flag() {
        true => input.flag().then(|| input.text()),
        false => Some(OWN),
    };
    let before = properties(table, user);
    let done = private::on_delivery(&before, OWN);
    if !sound {
        assert_eq!(done, None);
        return;
    }
    let (headers, shown) = seen(done.clone(), &before);
    if get(members, private::HISTORY).is_none_or(|history| history.tag != b'F') {
        assert_eq!(
            headers,
            raw(&reference::with_shown_cc(
                edited(members, &Members::new(), is_public),
                members
            )),
            "delivered"
        );
    } else if done.is_some() {
        // What it shows of deaths is for the target `deaths`.
        let (now, sound) = reference::table(&headers);
        assert!(sound && now.iter().all(|member| is_public(&member.name)));
        let others = |of: &[Member<'_>]| {
            let others = of.iter().filter(|member| is_public(&member.name));
            let others = others.filter(|member| {
                !member.name.starts_with(b"x-death") && !member.name.starts_with(b"x-first-death-")
            });
            others
                .flat_map(|member| member.raw.to_vec())
                .collect::<Vec<u8>>()
        };
        let shown = reference::with_shown_cc(members.clone(), members);
        assert_eq!(others(&now), others(&shown));
    }
    let expected = match original(members, user) {
        Some(original) => original,
        None => user.map(<[u8]>::to_vec),
    };
    if done.is_some() {
        assert_eq!(shown, expected);
    }
    // What was published and comes back unchanged shows what the client wrote.
    assert_eq!(
        private::on_delivery(&seen_as(done, &before), OWN),
        None,
        "twice is as once"
    );
}

/// The user-id that is hidden in a message with the proof; none without.
fn original(members: &Members, user: Option<&[u8]>) -> Option<Option<Vec<u8>>> {
    let hidden = get(members, private::USER_ID).filter(|_| user == Some(OWN))?;
    match hidden.tag {
        b'V' => Some(None),
        b'S' if hidden.data.len() <= 255 => Some(Some(hidden.data.to_vec())),
        _ => None,
    }
}

fn seen_as(edited: Option<Bytes>, before: &Bytes) -> Bytes {
    edited.unwrap_or_else(|| before.clone())
}

fn users_and_histories(table: &[u8], members: &Members, sound: bool, input: &mut Input<'_>) {
    let user = match input.flag() {
        true => input.text(),
        false => OWN,
    };
    let before = properties(table, Some(user));
    let parked = input.flag().then_some(Parked {
        exchange: b"x",
        cause: b"nacked",
    });
    let proven = proof::prove(&before, OWN, parked);
    assert_eq!(proven.is_some(), sound);
    if let Some(proven) = proven {
        let hidden = original(members, Some(user)).unwrap_or(Some(user.to_vec()));
        let hides = match &hidden {
            Some(user) => Member::longstr(private::USER_ID, user),
            None => Member::new(private::USER_ID, b'V', b""),
        };
        let mut sets = Members::new();
        if let Some(Parked { exchange, cause }) = parked {
            sets.push(Member::longstr(PARKED_EXCHANGE, exchange));
            sets.push(Member::longstr(PARKED_CAUSE, cause));
        }
        sets.push(hides);
        let claims = [private::USER_ID, PARKED_EXCHANGE, PARKED_CAUSE];
        let expected = edited(members, &sets, |name| !claims.contains(&name));
        let (headers, now) = seen(Some(proven.clone()), &before);
        assert_eq!((headers, now.as_deref()), (raw(&expected), Some(OWN)));
        let read = Properties::parse(&proven).expect("sound");
        assert_eq!(proof::proven(&read, OWN), Some(Original(hidden.as_deref())));
    }
    let emptied = private::without_history(&before);
    let has_one = get(members, private::HISTORY).is_some();
    assert_eq!(emptied.is_some(), sound && has_one);
    if let Some(emptied) = emptied {
        let sets = vec![Member::new(private::HISTORY, b'F', b"")];
        let expected = (raw(&edited(members, &sets, |_| true)), Some(user.to_vec()));
        assert_eq!(seen(Some(emptied), &before), expected);
    }
}

fn arguments(table: &[u8], members: &Members, sound: bool, input: &mut Input<'_>) {
    let intake = ShortStr::copy(input.text()).expect("short");
    let arguments = DeclareArguments::read(table);
    let probe = arguments.permission_probe();
    let rewritten = arguments.rewritten(&intake);
    let if_there = arguments.rewritten_if_there(&intake);
    if !sound {
        assert_eq!(
            (&probe[..], &rewritten[..], &if_there[..]),
            (table, table, table)
        );
        return;
    }
    let exchange = vec![Member::longstr(b"x-dead-letter-exchange", &intake)];
    let never = vec![Member::long(b"x-expires", -1)];
    let ours = edited(members, &exchange, |_| true);
    let ours = edited(&ours, &Members::new(), |name| {
        name != b"x-dead-letter-routing-key"
    });
    assert_eq!(rewritten, raw(&ours));
    assert_eq!(probe, raw(&edited(members, &never, |_| true)));
    let streams = vec![Member::longstr(b"x-max-age", b"never")];
    assert_eq!(if_there, raw(&edited(&ours, &streams, |_| true)));
}

/// The names of exchanges in the place of their bridges'. None: something on the way is not sound.
fn without_bridges(members: &[Member<'_>], outer: bool) -> Option<Members> {
    let behind = |data: &[u8]| data.strip_prefix(BRIDGE).unwrap_or(data).to_vec();
    let told = members.iter().map(|member| {
        let name = &*member.name;
        let data = match (name, member.tag) {
            (b"x-death", b'A') => {
                let (deaths, sound) = reference::array(&member.data);
                let told = deaths.iter().map(|death| {
                    let (fields, sound) = reference::table(&death.data);
                    if death.tag != b'F' {
                        return Some(death.raw.to_vec());
                    }
                    let fields = fields.iter().map(|field| match (&*field.name, field.tag) {
                        (b"exchange", b'S') => Member::longstr(b"exchange", &behind(&field.data)),
                        _ => Member::new(&field.name, field.tag, &field.data),
                    });
                    let fields: Members = fields.collect();
                    sound.then(|| Member::nameless(b'F', &raw(&fields)).raw.to_vec())
                });
                told.collect::<Option<Vec<_>>>().filter(|_| sound)?.concat()
            }
            (b"x-first-death-exchange" | b"x-last-death-exchange", b'S') => behind(&member.data),
            (private::HISTORY, b'F') if outer => {
                let (inner, sound) = reference::table(&member.data);
                raw(&without_bridges(&inner, false).filter(|_| sound)?)
            }
            _ => member.data.to_vec(),
        };
        Some(Member::new(name, member.tag, &data))
    });
    told.collect()
}

fn bridges(table: &[u8], members: &Members, sound: bool) {
    let bridges = Bridges::new(ShortStr::copy(BRIDGE).expect("short"));
    let content = Content {
        properties: properties(table, None),
        body: Bytes::from_static(b"body"),
    };
    let told = bridges.content(&content);
    let expected = without_bridges(members, true)
        .filter(|_| sound)
        .map(|members| raw(&members));
    let (headers, _) = seen(Some(told.properties.clone()), &content.properties);
    assert_eq!(headers, expected.unwrap_or(table.to_vec()));
    assert_eq!(told.body, content.body);
}

pub(crate) fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let what = input.below(10);
    let settings = input.bytes(24);
    let table = match what < 5 {
        true => {
            let mut table = raw(&drawn(&mut input, 3));
            // Maybe cut, so that the last member is not sound.
            table.truncate(table.len() - input.below(4).min(table.len()));
            table
        }
        false => input.rest().to_vec(),
    };
    let (members, sound) = reference::table(&table);
    let members: Members = members
        .iter()
        .map(|member| Member::new(&member.name, member.tag, &member.data))
        .collect();
    let settings = &mut Input::new(settings);
    match what % 5 {
        0 => publish(&table, &members, sound, settings),
        1 => delivery(&table, &members, sound, settings),
        2 => users_and_histories(&table, &members, sound, settings),
        3 => arguments(&table, &members, sound, settings),
        _ => bridges(&table, &members, sound),
    }
}
