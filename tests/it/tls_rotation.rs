//! Certificates that are replaced while the gateway runs.

use std::fs;
use std::os::unix::fs::symlink;

use rustix::process::Signal;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::support::{
    Answer, CertificateAuthority, Client, Gateway, Pem, Setup, TlsClient, python, text_of, until,
};
use crate::tls::{FUTURE, certificate, https, serve};

/// Waits until new connections are served with a certificate that this client trusts.
async fn served_to(gateway: &Gateway, client: &TlsClient) {
    until("the new certificate", || async {
        client.connect(gateway.address).await.ok()
    })
    .await;
}

/// Waits until the status says why the new files are not used.
async fn refused(gateway: &Gateway, why: &str) {
    until(why, || async {
        let tls = certificate(gateway).await;
        let refused = tls["refused"].as_str()?;
        refused.contains(why).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_new_certificate_is_served_and_open_streams_stay() {
    let (first, second) = (CertificateAuthority::new(), CertificateAuthority::new());
    let config = https("", "");
    let gateway = serve(Setup::new(&config), &first).await;
    let client = Client::open_over(&gateway, &first.client()).await;
    let mut stream = client.listen().await;
    let mut connection = first.client().connect(gateway.address).await.unwrap();

    second
        .issue(&["localhost"], FUTURE)
        .write(gateway.setup.directory.path());
    served_to(&gateway, &second.client()).await;
    assert!(first.client().connect(gateway.address).await.is_err());
    let log = gateway.log();
    assert!(log.contains("the certificate is read again"), "{log}");

    // What was open before is served on.
    gateway.write_config(&(config + &python("new", "")));
    stream.method("notifications/tools/list_changed").await;
    connection
        .write_all(&gateway.get("/health").bytes())
        .await
        .unwrap();
    let answer = Answer::read(connection).await.unwrap();
    assert_eq!(answer.status, 200);
    let client = Client::open_over(&gateway, &second.client()).await;
    let echo = client.call("example__echo", json!({"message": "hi"})).await;
    assert_eq!(text_of(&echo), "hi");
}

#[tokio::test]
async fn files_that_cannot_be_used_change_nothing() {
    let (first, second) = (CertificateAuthority::new(), CertificateAuthority::new());
    let gateway = serve(Setup::new(&https("", "")), &first).await;
    let place = gateway.setup.directory.path();
    let new = second.issue(&["localhost"], FUTURE);
    let bad = [
        (
            Pem {
                certificate: "no certificate".to_owned(),
                key: new.key.clone(),
            },
            "contains no certificate",
        ),
        (
            Pem {
                certificate: new.certificate.clone(),
                key: first.issue(&["localhost"], FUTURE).key,
            },
            "does not match the certificate",
        ),
        (second.issue(&["localhost"], 2021), "has expired"),
    ];
    for (pem, why) in bad {
        pem.write(place);
        refused(&gateway, why).await;
        first.client().connect(gateway.address).await.unwrap();
    }
    let log = gateway.log();
    assert!(log.contains("the certificate is not replaced"), "{log}");
    assert!(!log.contains(new.key.lines().nth(1).unwrap()));
    let (_, shown) = gateway.setup.run(&["status"]);
    assert!(
        shown.contains("current files were rejected: the new certificate"),
        "{shown}"
    );

    new.write(place);
    served_to(&gateway, &second.client()).await;
    assert!(certificate(&gateway).await["refused"].is_null());
}

#[tokio::test]
async fn sighup_reads_the_certificate_again() {
    let (first, second) = (CertificateAuthority::new(), CertificateAuthority::new());
    let gateway = serve(Setup::new(&https("", "")), &first).await;
    let place = gateway.setup.directory.path();
    // A file that vanished is no change to whoever watches it.
    fs::remove_file(place.join("cert.pem")).unwrap();
    gateway.signal(Signal::HUP);
    refused(&gateway, "cannot be read").await;
    first.client().connect(gateway.address).await.unwrap();
    second.issue(&["localhost"], FUTURE).write(place);
    gateway.signal(Signal::HUP);
    served_to(&gateway, &second.client()).await;
}

#[tokio::test]
async fn a_swapped_link_brings_certificate_and_authority_of_clients() {
    let (first, second) = (CertificateAuthority::new(), CertificateAuthority::new());
    let setup = Setup::new(&https("client_ca = \"ca.pem\"", ""));
    let at = |name: &str| setup.path(name);
    for (version, authority) in [("v1", &first), ("v2", &second)] {
        fs::create_dir(at(version)).unwrap();
        authority.issue(&["localhost"], FUTURE).write(&at(version));
        fs::write(at(version).join("ca.pem"), authority.pem()).unwrap();
    }
    symlink("v1", at("..data")).unwrap();
    for name in ["cert.pem", "key.pem", "ca.pem"] {
        symlink(format!("..data/{name}"), at(name)).unwrap();
    }
    let gateway = setup.serve().await;
    gateway.wait_state("example", "up").await;
    let with_certificate = |authority: &CertificateAuthority| {
        authority.client_with(&authority.issue(&["laptop"], FUTURE))
    };
    Client::open_over(&gateway, &with_certificate(&first)).await;

    let at = |name: &str| gateway.setup.path(name);
    symlink("v2", at("..data_tmp")).unwrap();
    fs::rename(at("..data_tmp"), at("..data")).unwrap();
    served_to(&gateway, &with_certificate(&second)).await;
    Client::open_over(&gateway, &with_certificate(&second)).await;
}

#[tokio::test]
async fn a_certificate_that_ends_is_named_everywhere() {
    let authority = CertificateAuthority::new();
    let setup = Setup::new(&https("", ""));
    // A gateway that does not start would be worse.
    authority
        .issue(&["localhost"], 2021)
        .write(setup.directory.path());
    let gateway = setup.serve().await;
    let tls = certificate(&gateway).await;
    assert_eq!(tls["standing"], "expired");
    assert!(tls["days_left"].as_i64().unwrap() < 0, "{tls}");
    let (_, shown) = gateway.setup.run(&["status"]);
    assert!(shown.contains("HAS EXPIRED"), "{shown}");
    assert!(gateway.log().contains("the certificate has expired"));
    assert!(authority.client().connect(gateway.address).await.is_err());
}
