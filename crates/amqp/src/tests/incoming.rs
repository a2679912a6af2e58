use crate::incoming::Incoming;

/// The payload of a header that announces so many octets of body.
fn header(octets: u64) -> Vec<u8> {
    [&[0, 60, 0, 0][..], &octets.to_be_bytes(), b"\x00\x00"].concat()
}

#[test]
fn a_message_is_whole_with_the_last_octet_of_its_body() {
    let mut message = Incoming::new("method");
    assert!(!message.is_whole());
    assert_eq!(message.header(&header(5), 100), Ok(true));
    message.body(b"he");
    assert!(!message.is_whole());
    message.body(b"llo");
    assert!(message.is_whole());
    let (method, content) = message.finish();
    assert_eq!(method, "method");
    assert_eq!(content.map(|content| content.body), Some("hello".into()));
}

#[test]
fn a_message_without_a_body_is_whole_with_its_header() {
    let mut message = Incoming::new(());
    assert_eq!(message.header(&header(0), 100), Ok(true));
    assert!(message.is_whole());
    assert!(
        message
            .finish()
            .1
            .is_some_and(|content| content.body.is_empty())
    );
}

#[test]
fn of_a_message_over_the_limit_only_the_end_is_awaited() {
    let mut message = Incoming::new(());
    assert_eq!(message.header(&header(5), 6), Ok(false));
    message.body(b"hell");
    assert!(!message.is_whole());
    message.body(b"o");
    assert!(message.is_whole());
    assert_eq!(message.finish().1, None);
}

#[test]
fn a_body_without_a_header_counts_for_nothing() {
    let mut message = Incoming::new(());
    message.body(b"hello");
    assert!(message.header(&header(0)[..11], 100).is_err());
    assert!(!message.is_whole());
    assert_eq!(message.finish().1, None);
}

#[test]
fn a_message_that_is_cut_has_no_content() {
    let mut message = Incoming::new(());
    assert_eq!(message.header(&header(5), 100), Ok(true));
    message.body(b"hell");
    assert_eq!(message.finish().1, None);
}
