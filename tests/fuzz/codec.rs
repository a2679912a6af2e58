//! Any bytes as frames, methods, properties and tables: each is read or refused, however deep it goes, and what was read is written as it was.

use dlx_proxy::amqp::frame::{self, Front, Kind};
use dlx_proxy::amqp::method::{
    Close, Consume, Deliver, ExchangeDeclare, Publish, QueueDeclare, Settle, StartOk,
};
use dlx_proxy::amqp::properties::{Edit, Properties};
use dlx_proxy::amqp::table::{Array, Table, TableBuilder};

pub(crate) fn target(data: &[u8]) {
    let (kind, bytes) = data.split_first().unwrap_or((&0, &[]));
    match kind % 5 {
        0 => frames(bytes),
        1 => methods(bytes),
        2 => properties(bytes),
        3 => tables(bytes),
        _ => tables(&nested(bytes)),
    }
}

fn frames(mut bytes: &[u8]) {
    while let Front::Whole(head, payload, length) = frame::front(bytes) {
        assert_eq!(length, head.whole());
        let kind = match head.kind {
            Kind::Method => 1,
            Kind::Header => 2,
            Kind::Body => 3,
            Kind::Heartbeat => 8,
            Kind::Other(octet) => octet,
        };
        let mut again = Vec::new();
        frame::put(&mut again, kind, head.channel, |out| {
            out.extend_from_slice(payload);
        });
        assert_eq!(again, bytes[..length]);
        bytes = &bytes[length..];
    }
}

/// What has tables or names of clients.
fn methods(payload: &[u8]) {
    let tables = [
        StartOk::parse(payload).map(|it| it.client_properties),
        ExchangeDeclare::parse(payload).map(|it| it.arguments),
        QueueDeclare::parse(payload).map(|it| it.arguments),
    ];
    tables.into_iter().flatten().for_each(self::tables);
    let _ = (Publish::parse(payload), Deliver::parse(payload));
    let _ = (Consume::parse(payload), Settle::parse(payload));
    let _ = Close::parse(payload);
}

fn properties(raw: &[u8]) {
    let Ok(properties) = Properties::parse(raw) else {
        return;
    };
    let values: Vec<_> = properties.values().collect();
    let edited = properties.edit(&Edit::default());
    let again = Properties::parse(&edited).expect("it was well-formed");
    assert_eq!(again.values().collect::<Vec<_>>(), values);
    assert!(properties.named().count() <= values.len());
    tables(properties.headers().unwrap_or_default());
}

/// With all that is in it, one by one.
fn tables(bytes: &[u8]) {
    let mut tables = vec![Table(bytes)];
    let mut arrays: Vec<Array<'_>> = Vec::new();
    loop {
        let values: Vec<_> = if let Some(table) = tables.pop() {
            let fields: Vec<_> = table.fields().collect();
            if table.check().is_ok() {
                let mut copy = TableBuilder::default();
                fields.iter().flatten().for_each(|field| {
                    copy.raw(field);
                });
                assert_eq!(copy.finish(), table.0);
            }
            fields.into_iter().flatten().map(|it| it.value).collect()
        } else if let Some(array) = arrays.pop() {
            array.values().flatten().collect()
        } else {
            return;
        };
        tables.extend(values.iter().filter_map(|value| value.as_table()));
        arrays.extend(values.iter().filter_map(|value| value.as_array()));
    }
}

/// Around the rest of the bytes, as many tables as the first two octets say.
fn nested(bytes: &[u8]) -> Vec<u8> {
    let (depth, core) = bytes.split_at(bytes.len().min(2));
    let depth = depth
        .iter()
        .fold(0, |sum, octet| sum * 256 + u32::from(*octet))
        % 3_000;
    let head = |level: u32| {
        let inside = core.len() as u32 + level * 7;
        [&b"\x01nF"[..], &inside.to_be_bytes()].concat()
    };
    let heads: Vec<u8> = (0..depth).rev().flat_map(head).collect();
    [&heads, core].concat()
}
