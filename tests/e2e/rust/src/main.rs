//! A client that does as it is told, like told_client.py: URL LOG SECONDS TOKEN CA LISTENER, where the last three may be
//! empty; this library writes no log and names no listener. Each line of input is a call, as JSON; each line of output
//! what came of it.

use std::collections::HashMap;
use std::error::Error;
use std::future::Future;
use std::time::Duration;

use futures::TryStreamExt;
use pulsar::consumer::{ConsumerOptions, InitialPosition};
use pulsar::producer::Message;
use pulsar::reader::Reader;
use pulsar::{Authentication, Consumer, OperationRetryOptions, Producer, Pulsar, SubType, TokioExecutor};
use regex::Regex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

type Outcome<T> = Result<T, Box<dyn Error>>;

struct Told {
    client: Pulsar<TokioExecutor>,
    patience: Duration,
    producers: HashMap<String, Producer<TokioExecutor>>,
    consumer: Option<Consumer<Vec<u8>, TokioExecutor>>,
}

impl Told {
    async fn within<T, E>(&self, work: impl Future<Output = Result<T, E>>) -> Outcome<T>
    where
        Box<dyn Error>: From<E>,
    {
        Ok(tokio::time::timeout(self.patience, work).await??)
    }

    async fn subscribe(&mut self, topic: Option<&str>, pattern: Option<&str>) -> Outcome<()> {
        let options = ConsumerOptions::default().with_initial_position(InitialPosition::Earliest);
        let mut builder = self.client.consumer().with_subscription("told").with_subscription_type(SubType::Exclusive);
        builder = builder.with_options(options);
        if let Some(topic) = topic {
            builder = builder.with_topic(topic);
        }
        if let Some(pattern) = pattern {
            let namespace: Vec<&str> = pattern.split('/').skip(2).take(2).collect();
            builder = builder.with_lookup_namespace(namespace.join("/")).with_topic_regex(Regex::new(pattern)?);
        }
        self.consumer = Some(self.within(builder.build()).await?);
        Ok(())
    }

    async fn produce(&mut self, topic: &str, messages: &[Value]) -> Outcome<()> {
        if !self.producers.contains_key(topic) {
            let producer = self.within(self.client.producer().with_topic(topic).build()).await?;
            self.producers.insert(topic.to_string(), producer);
        }
        let producer = self.producers.get_mut(topic).ok_or("no producer")?;
        for message in messages {
            let payload = message.as_str().ok_or("a message that is no text")?.as_bytes().to_vec();
            let message = Message { payload, ..Default::default() };
            let sending = async { producer.send_non_blocking(message).await?.await };
            tokio::time::timeout(self.patience, sending).await??;
        }
        Ok(())
    }

    async fn consume_one(&mut self) -> Outcome<String> {
        let consumer = self.consumer.as_mut().ok_or("not subscribed")?;
        let message = tokio::time::timeout(self.patience, consumer.try_next()).await??.ok_or("no more messages")?;
        consumer.ack(&message).await?;
        Ok(String::from_utf8(message.payload.data)?)
    }

    async fn read(&mut self, topic: &str, messages: u64) -> Outcome<Vec<String>> {
        let options = ConsumerOptions::default().with_initial_position(InitialPosition::Earliest);
        let builder = self.client.reader().with_topic(topic).with_options(options);
        let mut reader: Reader<Vec<u8>, _> = self.within(builder.into_reader()).await?;
        let mut read = Vec::new();
        for _ in 0..messages {
            let message = self.within(reader.try_next()).await?.ok_or("no more messages")?;
            read.push(String::from_utf8(message.payload.data)?);
        }
        Ok(read)
    }

    async fn call(&mut self, line: &str) -> Outcome<Value> {
        let call: Vec<Value> = serde_json::from_str(line)?;
        let (name, arguments) = call.split_first().ok_or("an empty call")?;
        let text = arguments.first().and_then(Value::as_str).unwrap_or_default();
        let number = arguments.last().and_then(Value::as_u64).unwrap_or_default();
        match name.as_str().unwrap_or_default() {
            "partitions" => {
                let partitions = self.within(self.client.lookup_partitioned_topic(text)).await?;
                Ok(json!(partitions.into_iter().map(|(topic, _)| topic).collect::<Vec<_>>()))
            }
            "subscribe" => Ok(json!(self.subscribe(Some(text), None).await?)),
            "subscribe_to_all" => Ok(json!(self.subscribe(None, Some(text)).await?)),
            "produce" => Ok(json!(self.produce(text, &arguments[1..]).await?)),
            "consume" => {
                let mut consumed = Vec::new();
                for _ in 0..number {
                    consumed.push(self.consume_one().await?);
                }
                Ok(json!(consumed))
            }
            "consume_until" => {
                while self.consume_one().await? != text {}
                Ok(Value::Null)
            }
            "read" => Ok(json!(self.read(text, number).await?)),
            other => Err(format!("no such call: {other}").into()),
        }
    }
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, _log, seconds, token, ca, _listener] = arguments.as_slice() else {
        return Err("URL LOG SECONDS TOKEN CA LISTENER".into());
    };
    let patience = Duration::from_secs(seconds.parse()?);
    let mut builder = Pulsar::builder(url, TokioExecutor)
        .with_operation_retry_options(OperationRetryOptions { operation_timeout: patience, ..Default::default() });
    if !token.is_empty() {
        builder = builder.with_auth(Authentication { name: "token".into(), data: token.clone().into_bytes() });
    }
    if !ca.is_empty() {
        builder = builder.with_certificate_chain_file(ca)?;
    }
    let client = tokio::time::timeout(patience, builder.build()).await??;
    let mut told = Told { client, patience, producers: HashMap::new(), consumer: None };
    let mut calls = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = calls.next_line().await? {
        let answer = match told.call(&line).await {
            Ok(done) => json!({ "done": done }),
            Err(failure) => json!({ "failed": failure.to_string() }),
        };
        println!("{answer}");
    }
    Ok(())
}
