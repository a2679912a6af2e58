//! New files and settings while the proxy runs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rcgen::date_time_ymd;
use tokio_rustls::rustls::ServerConfig;

use super::*;

/// What clients are shown now.
fn shown(certificates: &Certificates) -> Arc<ServerConfig> {
    certificates.clients().expect("TLS").0.load_full()
}

/// Another certificate in the files of [`good`].
fn renew(folder: &Folder, authority: &Authority, year: i32) {
    let (certificate, key) = authority.sign("localhost", (year, 1, 1));
    folder.write("cert.pem", certificate);
    folder.write("key.pem", key);
}

/// The settings, with such a certificate for the broker.
fn showing(folder: &Folder, authority: &Authority, settings: &Settings, year: i32) -> Settings {
    let (certificate, key) = authority.sign("proxy", (year, 1, 1));
    Settings {
        upstream_cert_file: folder.write(&format!("proxy-{year}.pem"), certificate),
        upstream_key_file: folder.write(&format!("proxy-{year}-key.pem"), key),
        ..settings.clone()
    }
}

#[tokio::test]
async fn new_files_count_for_new_connections_and_wrong_ones_not_at_all() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let settings = good(&folder, &authority);
    let metrics = Metrics::new();
    let certificates = Certificates::load(&settings, BOTH, metrics.clone()).expect("good");
    let expires = |year: i32| {
        let seconds = date_time_ymd(year, 1, 1).unix_timestamp();
        format!(
            "dlx_proxy_certificate_expires_timestamp_seconds{{setting=\"tls-cert-file\"}} {seconds}\n"
        )
    };
    assert!(metrics.encode().contains(&expires(2090)));
    let before = shown(&certificates);

    // Half of a pair, as when files are copied one after the other.
    let (certificate, key) = authority.sign("localhost", (2080, 1, 1));
    folder.write("cert.pem", certificate);
    certificates.change(&settings, BOTH);
    assert!(Arc::ptr_eq(&before, &shown(&certificates)));
    assert_eq!(
        shake(&certificates, "localhost").await.0.as_deref(),
        Ok("hello")
    );
    assert!(metrics.encode().contains(&expires(2090)));

    folder.write("key.pem", key);
    certificates.change(&settings, BOTH);
    let whole = shown(&certificates);
    assert!(!Arc::ptr_eq(&before, &whole));
    assert_eq!(
        shake(&certificates, "localhost").await.0.as_deref(),
        Ok("hello")
    );
    assert!(metrics.encode().contains(&expires(2080)));

    // The same files are no news.
    certificates.change(&settings, BOTH);
    assert!(Arc::ptr_eq(&whole, &shown(&certificates)));
}

#[tokio::test]
async fn changed_files_are_seen_without_a_signal_even_behind_a_symlink() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let mut settings = good(&folder, &authority);
    // As Kubernetes does it: the folder is a link, which is replaced.
    let pair = |name: &str, year| {
        let (certificate, key) = authority.sign("localhost", (year, 1, 1));
        std::fs::create_dir_all(folder.0.join(name)).expect("a folder");
        folder.write(&format!("{name}/tls.crt"), certificate);
        folder.write(&format!("{name}/tls.key"), key);
    };
    pair("first", 2070);
    pair("second", 2071);
    let link = folder.0.join("now");
    let point = |to: &str| {
        let new = folder.0.join("new");
        std::os::unix::fs::symlink(to, &new).expect("a link");
        std::fs::rename(&new, &link).expect("replaced");
    };
    point("first");
    let within = |name: &str| Some(Path::new(&link).join(name).display().to_string());
    settings.tls_cert_file = within("tls.crt");
    settings.tls_key_file = within("tls.key");
    let certificates = load(&settings);
    let before = shown(&certificates);
    let watching = tokio::spawn(certificates.clone().watch_every(Duration::from_millis(20)));
    point("second");
    let changed = async {
        while Arc::ptr_eq(&before, &shown(&certificates)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), changed)
        .await
        .expect("the new files are seen");
    watching.abort();
}

#[test]
fn a_client_knows_for_good_whether_it_shows_a_certificate() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let settings = good(&folder, &authority);
    let metrics = Metrics::new();
    let certificates = Certificates::load(&settings, BOTH, metrics.clone()).expect("good");
    let connector = certificates.upstream().expect("TLS");
    let first = connector.client();
    assert!(!first.shows_certificate());

    certificates.change(&showing(&folder, &authority, &settings, 2090), BOTH);
    let second = connector.client();
    assert!(second.shows_certificate());
    assert!(!first.shows_certificate());
    let series = "{setting=\"upstream-cert-file\"}";
    assert!(metrics.encode().contains(series));

    certificates.change(&settings, BOTH);
    assert!(!connector.client().shows_certificate());
    assert!(second.shows_certificate());
    assert!(!metrics.encode().contains(series));
}

#[test]
fn settings_that_wait_for_a_restart_do_not_stop_renewal() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let settings = good(&folder, &authority);
    let served = Uses {
        upstream: false,
        ..BOTH
    };
    let plain = Settings {
        upstream_ca_file: None,
        ..settings.clone()
    };
    // TLS to the broker is new, and so is the file that it needs; and the other way round.
    for (running, before, new, after) in [
        (served, &plain, BOTH, &settings),
        (BOTH, &settings, served, &plain),
    ] {
        renew(&folder, &authority, 2080);
        let certificates = Certificates::load(before, running, Metrics::new()).expect("good");
        let client = certificates.upstream().map(|it| it.client());
        certificates.change(after, new);
        let first = shown(&certificates);
        renew(&folder, &authority, 2081);
        certificates.change(after, new);
        assert!(!Arc::ptr_eq(&first, &shown(&certificates)));
        // What is trusted is not changed for a broker that is to be left.
        let same = certificates.upstream().map(|it| it.client());
        assert_eq!(
            client.map(|it| Arc::as_ptr(&it)),
            same.map(|it| Arc::as_ptr(&it))
        );
    }
}

#[test]
fn one_side_does_not_wait_for_the_other_and_wrong_settings_are_not_kept() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let settings = good(&folder, &authority);
    let certificates = load(&settings);
    let client = certificates.upstream().expect("TLS").client();
    let first = shown(&certificates);
    let wrong = Settings {
        upstream_ca_file: Some(folder.0.join("none.pem").display().to_string()),
        ..settings.clone()
    };
    renew(&folder, &authority, 2081);
    certificates.change(&wrong, BOTH);
    let second = shown(&certificates);
    assert!(!Arc::ptr_eq(&first, &second));
    assert!(Arc::ptr_eq(
        &client,
        &certificates.upstream().expect("TLS").client()
    ));

    // The file that is in force is still looked after.
    folder.write("ca.pem", authority.pem() + &Authority::new().pem());
    certificates.looked(certificates.look()());
    assert!(!Arc::ptr_eq(
        &client,
        &certificates.upstream().expect("TLS").client()
    ));
}

#[test]
fn an_expired_certificate_is_taken_only_in_place_of_another() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let settings = good(&folder, &authority);
    let certificates = load(&settings);
    let first = shown(&certificates);
    renew(&folder, &authority, 2021);
    certificates.change(&settings, BOTH);
    assert!(Arc::ptr_eq(&first, &shown(&certificates)));
    // Nor does the broker hear of one, where it got none.
    certificates.change(&showing(&folder, &authority, &settings, 2021), BOTH);
    let client = certificates.upstream().expect("TLS").client();
    assert!(!client.shows_certificate());

    // At start there is no other.
    let certificates = load(&settings);
    let expires = date_time_ymd(2021, 1, 1).unix_timestamp();
    let told: Vec<_> = certificates
        .expire()
        .iter()
        .map(|it| it.expires.as_secs())
        .collect();
    assert_eq!(told, [u64::try_from(expires).expect("since 1970")]);
    let first = shown(&certificates);
    renew(&folder, &authority, 2022);
    certificates.change(&settings, BOTH);
    assert!(!Arc::ptr_eq(&first, &shown(&certificates)));
}

#[test]
fn what_was_read_before_a_signal_is_not_taken_after_it() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let settings = good(&folder, &authority);
    let certificates = load(&settings);
    let looked = certificates.look()();
    renew(&folder, &authority, 2081);
    certificates.change(&settings, BOTH);
    let newer = shown(&certificates);
    certificates.looked(looked);
    assert!(Arc::ptr_eq(&newer, &shown(&certificates)));
}
