//! What of a changed address is used, and how often it is read.

#![expect(clippy::disallowed_methods, reason = "the environment names the server of the tests")]

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::postgres::PgSslMode;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, Row as _};

use super::*;

/// A database and two roles that may log in, until the server refuses the first.
struct Roles {
    name: String,
    admin: String,
}

impl Roles {
    async fn create() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (number, random) = (NEXT.fetch_add(1, Ordering::Relaxed), RandomState::new().build_hasher().finish());
        let admin = std::env::var("WORKSPACED_TEST_POSTGRES_URL").expect("WORKSPACED_TEST_POSTGRES_URL is set");
        let roles = Self { name: format!("address_{number}_{random:x}"), admin };
        for role in [roles.first(), roles.second()] {
            roles.execute(&format!("CREATE ROLE {role} LOGIN PASSWORD 'p'")).await;
            roles.execute(&format!("CREATE DATABASE {role}")).await;
        }
        roles
    }

    fn first(&self) -> String {
        format!("{}_a", self.name)
    }

    fn second(&self) -> String {
        format!("{}_b", self.name)
    }

    async fn execute(&self, sql: &str) {
        let mut connection = PgConnection::connect(&self.admin).await.unwrap();
        connection.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
    }

    /// From now on, the server refuses the first role.
    async fn refuse_first(&self) {
        self.execute(&format!("ALTER ROLE {} NOLOGIN", self.first())).await;
    }

    /// Returns a URL without the name of a database.
    fn url(&self, role: &str, more: &str) -> String {
        let (before, query) = self.admin.split_once('?').unwrap();
        let kept: Vec<_> = query.split('&').filter(|one| !one.starts_with("user=")).collect();
        let authority = before.split('/').nth(2).unwrap_or_default();
        format!("postgres://{authority}/?{}&user={role}&password=p{more}", kept.join("&"))
    }

    async fn drop(self) {
        for role in [self.first(), self.second()] {
            self.execute(&format!("DROP DATABASE {role} WITH (FORCE)")).await;
            self.execute(&format!("DROP ROLE {role}")).await;
        }
    }
}

fn reader(url: String) -> (AddressReader, Arc<AtomicU64>) {
    let count = Arc::<AtomicU64>::default();
    let counter = Arc::clone(&count);
    let read = move || {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(url.clone())
    };
    (Arc::new(read), count)
}

#[tokio::test]
async fn a_new_address_changes_the_role_and_no_guarantee() {
    let roles = Roles::create().await;
    roles.execute(&format!("ALTER ROLE {} SET synchronous_commit = off", roles.second())).await;
    let database = format!("&dbname={}", roles.first());
    let (read, _) = reader(roles.url(&roles.second(), &format!("{database}&sslmode=disable")));
    let url = roles.url(&roles.first(), &format!("{database}&sslmode=prefer"));
    let address = PostgresAddress::open(&url, Some(read)).await.unwrap();
    roles.refuse_first().await;
    let mut connection = address.connect().await.unwrap();
    for (query, value) in [
        ("SELECT current_user::text", roles.second()),
        ("SELECT current_database()::text", roles.first()),
        ("SHOW synchronous_commit", "on".to_owned()),
        ("SHOW jit", "off".to_owned()),
        ("SHOW statement_timeout", "10s".to_owned()),
    ] {
        assert_eq!(connection.fetch_one(query).await.unwrap().get::<String, _>(0), value, "{query}");
    }
    connection.close().await.unwrap();
    assert!(matches!(address.options().get_ssl_mode(), PgSslMode::Prefer));
    let pool = open::pool(parse(&url).unwrap());
    drop(address.acquire(&pool).await.unwrap());
    pool.close().await;
    roles.drop().await;
}

#[tokio::test]
async fn another_database_is_refused_also_if_its_name_is_that_of_the_role() {
    let roles = Roles::create().await;
    let (read, _) = reader(roles.url(&roles.second(), ""));
    let address = PostgresAddress::open(&roles.url(&roles.first(), ""), Some(read)).await.unwrap();
    roles.refuse_first().await;
    let error = address.connect().await.unwrap_err();
    assert!(format!("{error:?}").contains("names another one"), "{error:?}");
    roles.drop().await;
}

#[tokio::test]
async fn an_address_that_has_not_changed_is_read_once_a_second() {
    let roles = Roles::create().await;
    let url = roles.url(&roles.first(), "");
    let (read, count) = reader(url.clone());
    let address = PostgresAddress::open(&url, Some(read)).await.unwrap();
    roles.refuse_first().await;
    let begun = Instant::now();
    for _ in 0..10 {
        let error = address.connect().await.unwrap_err();
        assert!(format!("{error:?}").contains("28000"), "{error:?}");
    }
    let most = 1 + begun.elapsed().as_secs();
    assert!((1..=most).contains(&count.load(Ordering::SeqCst)), "{count:?} reads");
    roles.drop().await;
}

#[test]
fn credentials_are_those_of_any_address() {
    let of = |url: &str| credentials(&open::parse(url).unwrap());
    for url in [
        "postgres://a%40b:p%2Fq%25@db.example:5433/d",
        "postgres:///d?host=/run/x&user=a@b&password=p/q%25",
        "postgres:///d?host=::1&user=a@b&password=p/q%25",
        "postgres://[::1]/d?user=a@b&password=p/q%25",
    ] {
        assert_eq!(of(url), ("a@b".to_owned(), Some("p/q%".to_owned())), "{url}");
    }
}
