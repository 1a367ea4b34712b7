# Stands in for the image of Garage, which Debian does not have: moto's S3 server under the command of the original.
ARG BASE
FROM ${BASE}
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3-moto python3-flask python3-flask-cors \
 && rm -rf /var/lib/apt/lists/*
COPY garage /garage
