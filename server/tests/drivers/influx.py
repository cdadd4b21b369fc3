"""InfluxDB's clients write line protocol: influx.py URL."""

import sys

from influxdb_client import InfluxDBClient, Point
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.rest import ApiException
from influxdb_client_3 import InfluxDBClient3

url = sys.argv[1]
at = 1_704_067_200_000_000_000
with InfluxDBClient(url=url, token="any", org="any", enable_gzip=True) as client:
    assert client.ping() and client.health().status == "pass", client.health()
    with client.write_api(write_options=SYNCHRONOUS) as one:
        one.write(bucket="plant", record=[Point("cpu").tag("host", host).field("usage", 0.5).time(at) for host in "ab"])
        try:
            one.write(bucket="plant", record=["mem free=1i", "cpu usage=\"high\""])
            raise AssertionError("a text went into a number")
        except ApiException as error:
            assert error.status == 400 and "line 2: field 'usage'" in error.body, error
    with client.write_api() as batches:
        for number in range(2500):
            batches.write(bucket="plant", record=Point("disk").tag("host", "a").field("used", number).time(at + number))
client = InfluxDBClient3(host=url, token="any", database="plant")
client.write(record=[f"net,host=a sent={number}i {at + number}" for number in range(100)])
client.close()
