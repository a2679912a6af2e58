//! Headers as load balancers write them, and what is none.

use std::pin::Pin;
use std::task::{Context, Poll};

use proptest::prelude::*;
use tokio::io::ReadBuf;

use super::*;
use crate::tls::{Facts, Shown};

fn ends(source: &str, destination: &str) -> Ends {
    Ends {
        source: source.parse().expect("an address"),
        destination: destination.parse().expect("an address"),
    }
}

/// Yields a few bytes at a time, and counts reads.
struct Stream<'a> {
    rest: &'a [u8],
    piece: usize,
    reads: usize,
}

impl AsyncRead for Stream<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let fits = self.piece.min(buffer.remaining()).min(self.rest.len());
        let (read, rest) = self.rest.split_at(fits);
        buffer.put_slice(read);
        self.rest = rest;
        self.reads += 1;
        Poll::Ready(Ok(()))
    }
}

impl Peek for Stream<'_> {
    fn peek(&self, into: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send {
        let fits = self.piece.min(into.len()).min(self.rest.len());
        into[..fits].copy_from_slice(&self.rest[..fits]);
        std::future::ready(Ok(fits))
    }
}

/// Those of [`client`].
const ADDRESSES: &[u8] = b"\xc0\0\x02\x07\x0a\0\0\x01\xc3\x50\x16\x29";

fn client() -> Ends {
    ends("192.0.2.7:50000", "10.0.0.1:5673")
}

fn own() -> Ends {
    ends("10.0.0.2:40000", "10.0.0.3:5672")
}

fn read_of(bytes: &[u8]) -> (Result<Header, String>, Vec<u8>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(async {
        let mut stream = Stream {
            rest: bytes,
            piece: usize::MAX,
            reads: 0,
        };
        let read = read(&mut stream).await.map_err(|error| error.to_string());
        (read, stream.rest.to_vec())
    })
}

fn first(of: Ends) -> Vec<u8> {
    let ends = (of.source, of.destination);
    v1::Addresses::from(ends).to_string().into_bytes()
}

fn second(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let mut header = v2::PROTOCOL_PREFIX.to_vec();
    header.extend([0x20 | command, family]);
    header.extend(u16::try_from(rest.len()).expect("short").to_be_bytes());
    header.extend(rest);
    header
}

#[test]
fn what_it_writes_it_reads_and_nothing_behind_it() {
    for (source, destination) in [
        ("192.0.2.7:50000", "10.0.0.1:5673"),
        ("[2001:db8::7]:50000", "[::1]:5673"),
    ] {
        let of = ends(source, destination);
        for mut bytes in [first(of), Origin::from(of).header(own(), Told::V2)] {
            bytes.extend(b"AMQP\0\0\x09\x01");
            let (read, rest) = read_of(&bytes);
            assert_eq!(read.map(|header| header.ends), Ok(Some(of)));
            assert_eq!(rest, b"AMQP\0\0\x09\x01");
        }
        assert_eq!(Origin::from(of).header(own(), Told::Off), b"");
    }
}

#[tokio::test]
async fn a_header_may_come_in_pieces() {
    let of = client();
    let headers = [first(of), Origin::from(of).header(own(), Told::V2)];
    for (header, piece) in headers
        .iter()
        .flat_map(|header| (1..60).map(move |piece| (header, piece)))
    {
        let bytes = [&header[..], b"AMQP"].concat();
        let mut stream = Stream {
            rest: &bytes,
            piece,
            reads: 0,
        };
        let header = read(&mut stream).await.expect("a header");
        assert_eq!(
            (header.ends, stream.rest),
            (Some(of), &b"AMQP"[..]),
            "{header:?} {piece}"
        );
        // What has come at once is read at once: signature, line; signature, length, rest.
        assert!(piece < 59 || stream.reads <= 3, "{} reads", stream.reads);
    }
}

#[test]
fn addresses_of_two_families_are_written_as_one() {
    let of = ends("[::ffff:192.0.2.7]:50000", "10.0.0.1:5673");
    assert_eq!(of.of_one_family(), ends("192.0.2.7:50000", "10.0.0.1:5673"));
    let of = ends("[2001:db8::7]:50000", "10.0.0.1:5673");
    let mapped = ends("[2001:db8::7]:50000", "[::ffff:10.0.0.1]:5673");
    assert_eq!(of.of_one_family(), mapped);
}

#[test]
fn who_does_not_say_for_whom_speaks_for_itself() {
    let unix = [0; 216];
    for header in [
        b"PROXY UNKNOWN\r\n".to_vec(),
        b"PROXY UNKNOWN ff02::1 ff02::2 1 2\r\n".to_vec(),
        second(0, 0, b""),
        second(0, 0x11, ADDRESSES),
        second(1, 0x31, &unix),
    ] {
        let (read, rest) = read_of(&header);
        assert_eq!(
            (read, rest),
            (Ok(Header::default()), Vec::new()),
            "{header:?}"
        );
    }
}

#[test]
fn that_a_client_came_with_tls_is_told_as_the_specification_has_it() {
    let shown = |name: Option<&str>, before| {
        Some(Shown {
            name: name.map(str::to_owned),
            before,
        })
    };
    let version = &b"\x21\0\x07TLSv1.3"[..];
    let cipher = &b"\x23\0\x16TLS_AES_128_GCM_SHA256"[..];
    for (shown, value) in [
        (None, [b"\x01\0\0\0\x01", version, cipher].concat()),
        (
            shown(Some("me"), false),
            [b"\x07\0\0\0\0", version, b"\x22\0\x02me", cipher].concat(),
        ),
        (
            shown(None, true),
            [b"\x05\0\0\0\0", version, cipher].concat(),
        ),
    ] {
        let facts = Facts {
            version: Some("TLSv1.3"),
            cipher: Some("TLS_AES_128_GCM_SHA256".to_owned()),
            shown,
        };
        let origin = Origin {
            ssl: Some(Ssl::of(&facts)),
            ..client().into()
        };
        let length = u16::try_from(value.len()).expect("short").to_be_bytes();
        let rest = [ADDRESSES, b"\x20", &length, &value].concat();
        assert_eq!(origin.header(own(), Told::V2), second(1, 0x11, &rest));
    }
}

#[test]
fn what_a_load_balancer_says_of_tls_is_passed_on_as_it_is() {
    let told = |ssl: &[u8]| {
        let length = u16::try_from(ssl.len()).expect("short").to_be_bytes();
        let rest = [ADDRESSES, b"\x02\0\x04name", b"\x20", &length, ssl].concat();
        let (header, rest) = read_of(&second(1, 0x11, &rest));
        let header = header.expect("a header");
        assert_eq!((header.ends, rest), (Some(client()), Vec::new()));
        header.ssl
    };
    let ssl = b"\x01\0\0\0\x01\x21\0\x07TLSv1.2\x29\0\x01?";
    let origin = Origin {
        ssl: told(ssl),
        ..client().into()
    };
    let rest = [ADDRESSES, b"\x20\0\x13", ssl].concat();
    assert_eq!(origin.header(own(), Told::V2), second(1, 0x11, &rest));
    for none in [&b"\0\0\0\0\0"[..], b"\x01", b"", &[1; 8 * 1024 + 1]] {
        assert_eq!(told(none), None, "{none:?}");
    }
}

#[test]
fn a_client_without_addresses_has_those_of_the_proxy() {
    let bytes = Origin::LOCAL.header(own(), Told::V2);
    assert_eq!(bytes, Origin::from(own()).header(own(), Told::V2));
}

#[test]
fn what_is_no_header_is_told() {
    for (bytes, problem) in [
        (
            &b"AMQP\0\0\x09\x01AMQP"[..],
            "does not begin with a PROXY header",
        ),
        (b"PROXY TCP4 ", "ended in its PROXY header"),
        (b"PROXY TCP4 192.0.2.7\r\n", "version 1 that cannot be read"),
        (
            &[b"PROXY TCP4 ", &[b'1'; 200][..]].concat(),
            "version 1 that cannot be read",
        ),
        (&second(1, 0x11, b"\xc0\0"), "version 2 that cannot be read"),
        (&second(5, 0x11, b""), "version 2 that cannot be read"),
        (
            &second(1, 0x11, b"\xc0\0\x02\x07")[..18],
            "ended in its PROXY header",
        ),
    ] {
        let said = read_of(bytes).0.expect_err("no header");
        assert!(said.contains(problem), "{said}");
    }
}

#[test]
fn a_network_is_trusted_however_its_addresses_are_written() {
    let networks = ["10.1.2.3/8", "::1"].map(|text| Trusted::network(text).expect("a network"));
    let trusted = Trusted(networks.to_vec());
    assert_eq!(trusted.0[0].to_string(), "10.0.0.0/8");
    for (address, is_trusted) in [
        ("10.255.0.1", true),
        ("::ffff:10.0.0.1", true),
        ("::1", true),
        ("11.0.0.1", false),
        ("::2", false),
    ] {
        let address = address.parse().expect("an address");
        assert_eq!(trusted.contains(address), is_trusted, "{address}");
    }
    assert!(Trusted::network("10.0.0.0/33").is_err());
    assert!(Trusted::network("host").is_err());
}

proptest! {
    #[test]
    fn no_octets_make_it_fall_over(bytes in prop::collection::vec(any::<u8>(), 0..300), how in 0..3) {
        let bytes = match how {
            0 => bytes,
            1 => [b"PROXY ", &bytes[..]].concat(),
            _ => [v2::PROTOCOL_PREFIX, &bytes].concat(),
        };
        let _ = read_of(&bytes);
    }
}
