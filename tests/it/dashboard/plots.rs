//! The plots of the gateway and of a server.

use serde_json::{Value, json};

use super::pages::check_html;
use super::{Browser, shown};
use crate::support::{Client, Gateway, Http, example, quick, until};

async fn plots(browser: &Browser<'_>, query: &str) -> Value {
    serde_json::from_str(&browser.page(&format!("/ui/plots?{query}")).await).unwrap()
}

fn line<'p>(plots: &'p Value, plot: usize, name: &str) -> Vec<&'p Value> {
    let lines = plots["plots"][plot]["lines"].as_array().unwrap();
    let found = lines.iter().find(|line| line["name"] == name);
    let values = found.unwrap()["values"].as_array().unwrap().iter();
    values.filter(|value| !value.is_null()).collect()
}

#[tokio::test]
async fn plots_have_the_same_times_in_every_range() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    gateway.all_up().await;
    let browser = Browser::sign_in(&gateway).await;
    for (range, step) in [
        ("15m", 10),
        ("1h", 40),
        ("6h", 240),
        ("start", 10),
        ("x", 10),
    ] {
        let found = plots(&browser, &format!("range={range}")).await;
        let times: Vec<u64> = serde_json::from_value(found["times"].clone()).unwrap();
        assert_eq!(times.len(), 90);
        assert!(
            times.windows(2).all(|it| it[1] - it[0] == step),
            "{range}: {times:?}"
        );
        let titles: Vec<&Value> = found["plots"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| &it["title"])
            .collect();
        assert_eq!(titles, ["Calls", "Duration", "Sessions", "Memory"]);
        for plot in found["plots"].as_array().unwrap() {
            for line in plot["lines"].as_array().unwrap() {
                assert_eq!(line["values"].as_array().unwrap().len(), 90);
            }
        }
    }
    let without_login = Http::new(gateway.address, "GET", "/ui/plots").send().await;
    assert_eq!(without_login.status, 303);
}

#[tokio::test]
async fn calls_of_a_server_are_plotted_and_in_a_table() {
    let config = quick() + &example("one") + &example("two");
    let gateway = Gateway::start(&config).await;
    gateway.all_up().await;
    let client = Client::open(&gateway).await;
    client.call("one__echo", json!({"message": "hello"})).await;
    client.call("one__echo", json!({"message": 7})).await;
    let browser = Browser::sign_in(&gateway).await;
    // The interval of the calls ends within ten seconds.
    let found = until("the calls", || async {
        let found = plots(&browser, "server=one").await;
        let calls = line(&found, 0, "calls").into_iter();
        let calls: f64 = calls.filter_map(Value::as_f64).sum();
        (calls == 12.0).then_some(found)
    })
    .await;
    let sum = |name| -> f64 {
        line(&found, 0, name)
            .iter()
            .filter_map(|it| it.as_f64())
            .sum()
    };
    assert_eq!(
        (sum("calls"), sum("failed"), sum("tool errors")),
        (12.0, 0.0, 6.0)
    );
    assert!(!line(&found, 1, "p95").is_empty(), "{found}");
    let other = plots(&browser, "server=two").await;
    assert!(line(&other, 0, "calls").is_empty(), "{other}");
    let page = shown(&browser, "/ui?range=1h", "Numbers of the plots").await;
    check_html(&page, "/ui");
    assert!(page.contains("?range=1h\" aria-current=\"true\""), "{page}");
}
