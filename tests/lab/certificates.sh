#!/usr/bin/env bash
# Certificates for tests, in a folder: certificates.sh DIR
#   ca.pem, ca.key             who signs all others        server.pem, server.key   for localhost and 127.0.0.1
#   client.pem, client.key     of the user `guest`         other.pem, other.key     of nobody's CA, for localhost
#   expired.pem, expired.key   for localhost, but over     elsewhere.pem, .key      for another name
#   soon.pem, soon.key         for localhost, for ten more days
set -euo pipefail
mkdir -p "$1"
cd "$1"
export OPENSSL_CONF=/dev/null

key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key" 2>/dev/null; }

authority() { # NAME
  key "$1"
  openssl req -x509 -new -key "$1.key" -subj "/CN=$1 of the tests" -days 3650 -out "$1.pem" \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
}

signed() { # NAME SUBJECT NAMES AUTHORITY [DAYS]
  key "$1"
  openssl req -new -key "$1.key" -subj "/CN=$2" -out "$1.csr"
  openssl x509 -req -in "$1.csr" -CA "$4.pem" -CAkey "$4.key" -CAcreateserial -days "${5:-3650}" -out "$1.pem" \
    -extfile <(echo "subjectAltName=$3") 2>/dev/null
  rm "$1.csr"
}

over() { # as `signed`, but its time is over
  key "$1"
  openssl req -new -key "$1.key" -subj "/CN=$2" -out "$1.csr"
  : >index.txt
  printf '%s\n' '[ca]' 'default_ca = it' '[it]' 'database = index.txt' 'new_certs_dir = .' 'rand_serial = yes' 'default_md = sha256' \
    'policy = names' '[names]' 'commonName = supplied' '[extensions]' "subjectAltName = $3" >ca.conf
  openssl ca -batch -notext -config ca.conf -extensions extensions -cert "$4.pem" -keyfile "$4.key" -startdate 20200101000000Z \
    -enddate 20210101000000Z -in "$1.csr" -out "$1.pem" 2>/dev/null
  rm -f "$1.csr" ca.conf index.txt* [0-9A-F]*.pem
}

here=DNS:localhost,IP:127.0.0.1
authority ca
authority stranger
signed server localhost "$here" ca
signed client guest DNS:guest ca
signed other localhost "$here" stranger
signed soon localhost "$here" ca 10
signed elsewhere elsewhere DNS:elsewhere.example ca
over expired localhost "$here" ca
