# Stands in for the image of Rust: this machine's toolchain, and the crates that cargo has downloaded.
ARG BASE
FROM ${BASE}
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
COPY toolchain /usr/local/toolchain
COPY registry /usr/local/cargo/registry
ENV CARGO_HOME=/usr/local/cargo PATH=/usr/local/toolchain/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
