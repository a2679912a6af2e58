//! A decoder of field tables that is slow and obvious, and shares nothing with the code under test.

use std::borrow::Cow;

use dlx_proxy::dead_letter::private;

/// One member of a table, or of an array (then without a name).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Member<'a> {
    pub(crate) name: Cow<'a, [u8]>,
    pub(crate) tag: u8,
    /// Without the length of what has one.
    pub(crate) data: Cow<'a, [u8]>,
    /// Name and value, as on the wire.
    pub(crate) raw: Cow<'a, [u8]>,
}

/// The members up to the end or the first that is not sound, and whether all are.
pub(crate) fn table(bytes: &[u8]) -> (Vec<Member<'_>>, bool) {
    members(bytes, true)
}

/// The same of an array.
pub(crate) fn array(bytes: &[u8]) -> (Vec<Member<'_>>, bool) {
    members(bytes, false)
}

fn members(bytes: &[u8], named: bool) -> (Vec<Member<'_>>, bool) {
    let mut members = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let Some(member) = first(rest, named) else {
            return (members, false);
        };
        rest = &rest[member.raw.len()..];
        members.push(member);
    }
    (members, true)
}

fn first(rest: &[u8], named: bool) -> Option<Member<'_>> {
    let mut at = 0;
    let mut name = &[][..];
    if named {
        let length = usize::from(rest[0]);
        name = rest.get(1..1 + length)?;
        at = 1 + length;
    }
    let tag = *rest.get(at)?;
    at += 1;
    // The types of `rabbit_binary_parser`.
    let length = match tag {
        b'V' => 0,
        b't' | b'b' | b'B' => 1,
        b's' | b'u' => 2,
        b'I' | b'i' | b'f' => 4,
        b'D' => 5,
        b'l' | b'L' | b'd' | b'T' => 8,
        b'S' | b'x' | b'F' | b'A' => {
            let octets = rest.get(at..at + 4)?;
            at += 4;
            octets
                .iter()
                .fold(0, |n, octet| n * 256 + usize::from(*octet))
        }
        _ => return None,
    };
    let data = rest.get(at..at.checked_add(length)?)?;
    Some(Member {
        name: name.into(),
        tag,
        data: data.into(),
        raw: rest[..at + length].into(),
    })
}

// === impl Member ===

impl Member<'static> {
    /// A longstr.
    pub(crate) fn longstr(name: &[u8], text: &[u8]) -> Member<'static> {
        Member::new(name, b'S', text)
    }

    /// A signed number of 64 bits.
    pub(crate) fn long(name: &[u8], number: i64) -> Member<'static> {
        Member::new(name, b'l', &number.to_be_bytes())
    }

    /// A value without a name.
    pub(crate) fn nameless(tag: u8, data: &[u8]) -> Member<'static> {
        let mut member = Member::new(b"", tag, data);
        member.raw = member.raw[1..].to_vec().into();
        member
    }

    pub(crate) fn new(name: &[u8], tag: u8, data: &[u8]) -> Member<'static> {
        let mut raw = vec![name.len() as u8];
        raw.extend_from_slice(name);
        raw.push(tag);
        if b"SxFA".contains(&tag) {
            raw.extend_from_slice(&(data.len() as u32).to_be_bytes());
        }
        raw.extend_from_slice(data);
        Member {
            name: name.to_vec().into(),
            tag,
            data: data.to_vec().into(),
            raw: raw.into(),
        }
    }
}

impl Member<'_> {
    /// A number, if it is one.
    pub(crate) fn integer(&self) -> Option<i128> {
        if !b"bBsuIilL".contains(&self.tag) {
            return None;
        }
        let octets = self.data.iter();
        let number = octets.fold(0i128, |n, octet| n * 256 + i128::from(*octet));
        let range = 1i128 << (8 * self.data.len());
        let negative = !b"Bui".contains(&self.tag) && number >= range / 2;
        Some(if negative { number - range } else { number })
    }
}

/// All members as they are on the wire.
pub(crate) fn raw(members: &[Member<'_>]) -> Vec<u8> {
    members
        .iter()
        .flat_map(|member| member.raw.to_vec())
        .collect()
}

/// The value of the first member of that name.
pub(crate) fn get<'m, 'a>(members: &'m [Member<'a>], name: &[u8]) -> Option<&'m Member<'a>> {
    members.iter().find(|member| *member.name == *name)
}

/// What a client is shown, with the CC that `headers` keep in private.
pub(crate) fn with_shown_cc(
    mut shown: Vec<Member<'static>>,
    headers: &[Member<'_>],
) -> Vec<Member<'static>> {
    if let Some(kept) = get(headers, private::CC)
        && get(headers, b"CC").is_none()
    {
        let behind = shown.iter().position(|member| *member.name > b"CC"[..]);
        let at = behind.unwrap_or(shown.len());
        shown.insert(at, Member::new(b"CC", kept.tag, &kept.data));
    }
    shown
}
