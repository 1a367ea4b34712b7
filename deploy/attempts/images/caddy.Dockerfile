# Stands in for the image of Caddy: Debian's older version, with the folders and the command of the original.
ARG BASE
FROM ${BASE}
RUN apt-get update \
 && apt-get install -y --no-install-recommends caddy libcap2-bin \
 && setcap cap_net_bind_service=+ep /usr/bin/caddy \
 && rm -rf /var/lib/apt/lists/* \
 && mkdir -p /config/caddy /data/caddy
ENV XDG_CONFIG_HOME=/config XDG_DATA_HOME=/data
CMD ["caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"]
