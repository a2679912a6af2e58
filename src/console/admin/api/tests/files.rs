//! Who is let in before anything is taken, and files that are no use.

use std::convert::Infallible;

use super::*;

/// A stranger takes none of what others wait for, and nothing of a file is read before its sender is known.
#[tokio::test]
async fn nothing_is_taken_before_the_broker_has_let_somebody_in() {
    let (api, _) = api(broker(refusal(403, REFUSED)).await, 0);
    let mut import = change(&format!("{LIST}/import"));
    *import.body_mut() = Body::from("no line of an export");
    for request in [
        by("me", LIST, FAR),
        by("me", &format!("{LIST}/export"), FAR),
        import,
    ] {
        let (status, body, _) = ask(&api, request).await;
        assert_eq!((status, &body["detail"]), (401, &Value::from(REFUSED)));
    }
    let mut live = by("me", "/api/v1/vhosts/%2F/deaths", FAR);
    let events = HeaderValue::from_static("text/event-stream");
    live.headers_mut().insert(header::ACCEPT, events);
    let watches = Watches::new(RecentDeaths::new(Wall(0)), 0);
    let broker = broker(refusal(403, REFUSED)).await;
    let (parts, _) = parts(broker, 1, Duration::from_millis(200), watches);
    let (status, body, _) = ask(&alone(parts), live).await;
    assert_eq!((status, &body["detail"]), (401, &Value::from(REFUSED)));
}

/// A file that was sent.
fn file(text: impl Into<Body>) -> Request {
    let mut request = change(&format!("{MINE}/dead-letters/import"));
    *request.body_mut() = text.into();
    request
}

#[tokio::test]
async fn who_sends_files_that_cannot_be_read_is_slowed_down() {
    let (api, _) = api(deaths::lenient().await, 1);
    let mut waits = Vec::new();
    for _ in 0..3 {
        let begun = Instant::now();
        let (status, body, _) = ask(&api, file("no line of an export")).await;
        assert_eq!(status, 400, "{body}");
        waits.push(begun.elapsed());
    }
    assert!(waits[1] >= Duration::from_millis(200), "{waits:?}");
    assert!(waits[2] >= Duration::from_millis(400), "{waits:?}");
}

/// It does not take a look from others, and it ends.
#[tokio::test]
async fn a_file_that_comes_too_slowly_is_given_up() {
    let watches = Watches::new(RecentDeaths::new(Wall(0)), 2);
    let (mut parts, metrics) = parts(deaths::lenient().await, 1, Duration::from_secs(20), watches);
    parts.files.limits = LiveLimits::new(Limits {
        admin_timeout: Duration::from_millis(100),
        ..crate::config::Config::limits_of_tests()
    });
    let api = alone(parts);
    let never = futures::stream::pending::<Result<Bytes, Infallible>>();
    let (status, body, _) = ask(&api, file(Body::from_stream(never))).await;
    assert_eq!(
        (status, &body["detail"]),
        (408, &"the file comes too slowly".into())
    );
    let met = "{limit=\"admin-timeout\"} 1\n";
    assert!(metrics.encode().contains(met), "{}", metrics.encode());
}
