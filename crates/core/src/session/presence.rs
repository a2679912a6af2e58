//! How a client can see that a proxy is there: a server property in `connection.start`, behind those of the broker, whose bytes stay as they are.

use crate::amqp::method::{MethodId, Start};
use crate::amqp::table::{Table, TableBuilder};

const NAME: &[u8] = b"dlx_proxy";
const VERSION: &[u8] = env!("CARGO_PKG_VERSION").as_bytes();
/// What every client can read before frames have a limit (`frame-min-size`), less head and end.
const LONGEST: usize = 4096 - 8;

/// `connection.start` with the property. `None`: no change, as it has one already, has no room, or
/// cannot be read.
pub(super) fn shown(payload: &[u8]) -> Option<Vec<u8>> {
    let properties = Start::parse(payload).ok()?.server_properties;
    if Table(properties).get(NAME).ok()?.is_some() {
        return None;
    }
    let mut table = TableBuilder::onto(properties.to_vec());
    table.longstr(NAME, VERSION);
    let table = table.finish();
    // Class and method, version, a table with its length.
    let before = size_of::<MethodId>() + 2;
    let length = u32::try_from(table.len()).ok()?.to_be_bytes();
    let behind = payload.get(before + 4 + properties.len()..)?;
    let shown = [payload.get(..before)?, &length, &table, behind].concat();
    (shown.len() <= LONGEST).then_some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::frame::HEAD;
    use crate::amqp::ids::ChannelId;
    use crate::amqp::reply;

    fn start(properties: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        reply::method(&mut out, ChannelId(0), MethodId::CONNECTION_START, |a| {
            let a = a.short(9).longstr(properties).longstr(b"PLAIN");
            a.longstr(b"en_US").end();
        });
        out[HEAD..out.len() - 1].to_vec()
    }

    fn table(build: impl FnOnce(&mut TableBuilder) -> &mut TableBuilder) -> Vec<u8> {
        let mut table = TableBuilder::default();
        build(&mut table);
        table.finish()
    }

    #[test]
    fn the_version_stands_behind_what_the_broker_says() {
        let with = table(|table| {
            let table = table.longstr(b"version", b"4.3.6");
            table.longstr(NAME, VERSION)
        });
        let before = start(&table(|table| table.longstr(b"version", b"4.3.6")));
        assert_eq!(shown(&before), Some(start(&with)));
        assert_eq!(shown(&start(&with)), None, "of another proxy");
        let full = table(|table| table.longstr(b"cluster_name", &[b'a'; 4040]));
        assert_eq!(shown(&start(&full)), None);
        assert_eq!(shown(&start(b"\x07versionZ")), None);
        assert_eq!(shown(&before[..20]), None);
    }
}
