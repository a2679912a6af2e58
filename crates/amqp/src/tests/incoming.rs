use crate::incoming::Incoming;

/// Headers that announce so many octets of body (or are cut), and what is kept of them; the pieces that come; whether it is whole then.
#[test]
fn a_message_is_whole_with_the_last_octet_of_its_body() {
    let header = |octets: u64| [&[0, 60, 0, 0][..], &octets.to_be_bytes(), b"\x00\x00"].concat();
    let cut = header(0)[..11].to_vec();
    for (header, read, pieces, whole, body) in [
        (header(5), Ok(true), &["he", "llo"][..], true, Some("hello")),
        (header(5), Ok(true), &["hell"], false, None),
        (header(0), Ok(true), &[], true, Some("")),
        // Of what is over the limit only the end is awaited.
        (header(5), Ok(false), &["hell", "o"], true, None),
        (header(5), Ok(false), &["hell"], false, None),
        (cut, Err(crate::cursor::Malformed), &["hello"], false, None),
    ] {
        let mut message = Incoming::new("method");
        assert!(!message.is_whole());
        let limit = if read == Ok(false) { 6 } else { 100 };
        assert_eq!(message.header(&header, limit), read);
        for piece in pieces {
            message.body(piece.as_bytes());
        }
        assert_eq!(message.is_whole(), whole, "{pieces:?}");
        let (method, content) = message.finish();
        assert_eq!(method, "method");
        assert_eq!(content.map(|content| content.body), body.map(Into::into));
    }
}
