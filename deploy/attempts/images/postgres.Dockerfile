# Stands in for the image of PostgreSQL: Debian's packages, with the variables and the folder of scripts of the original.
ARG BASE
FROM ${BASE}
RUN apt-get update \
 && apt-get install -y --no-install-recommends postgresql-17 \
 && rm -rf /var/lib/apt/lists/* /var/lib/postgresql/* \
 && install -d -o postgres -g postgres -m 700 /var/lib/postgresql/data
COPY postgres-entrypoint /usr/local/bin/
ENV PATH=/usr/lib/postgresql/17/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PGDATA=/var/lib/postgresql/data
VOLUME /var/lib/postgresql/data
STOPSIGNAL SIGINT
ENTRYPOINT ["postgres-entrypoint"]
