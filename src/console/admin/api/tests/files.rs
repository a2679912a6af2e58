//! Files that are no use.

use std::convert::Infallible;

use super::*;

/// It does not take a look from others, and it ends.
#[tokio::test]
async fn a_file_that_comes_too_slowly_is_given_up() {
    let mut config = lenient().await;
    config.reloadable.limits.admin_timeout = Duration::from_millis(100);
    let (api, metrics) = served(&config);
    let never = futures::stream::pending::<Result<Bytes, Infallible>>();
    let mut import = change(&format!("{MINE}/dead-letters/import"));
    *import.body_mut() = Body::from_stream(never);
    let (status, body) = json_of(&api, import).await;
    let expected = (408, &"the file comes too slowly".into());
    assert_eq!((status, &body["detail"]), expected);
    let met = "{limit=\"admin-timeout\"} 1\n";
    assert!(metrics.encode().contains(met), "{}", metrics.encode());
}
