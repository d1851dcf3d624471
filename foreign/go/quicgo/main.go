// A tenant of the lab that sends or receives one QUIC stream, over UDP of the kernel it runs on.
package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"time"

	"github.com/quic-go/quic-go"

	"sluicegate/foreign/tenant"
)

const protocol = "sluicegate-lab"

func main() {
	order := tenant.ReadOrder()
	if order.Sends() {
		send(order)
	}
	receive(order)
}

func config() *quic.Config {
	return &quic.Config{
		MaxIdleTimeout:                 30 * time.Second,
		MaxStreamReceiveWindow:         8 << 20,
		MaxConnectionReceiveWindow:     8 << 20,
		InitialStreamReceiveWindow:     1 << 20,
		InitialConnectionReceiveWindow: 1 << 20,
	}
}

func send(order tenant.Order) {
	run := tenant.Begin(order)
	go func() {
		stream, err := dial(net.JoinHostPort(order["peer"], order["port"]))
		if err != nil {
			run.Fail("connecting: %v", err)
			return
		}
		run.Send(stream)
	}()
	run.Finish(func(*tenant.Run) {})
}

func dial(peer string) (*quic.SendStream, error) {
	// The receiver has made the certificate for this run: no authority vouches for it.
	trust := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}
	connection, err := quic.DialAddr(context.Background(), peer, trust, config())
	if err != nil {
		return nil, err
	}
	return connection.OpenUniStream()
}

func receive(order tenant.Order) {
	identity, err := identity()
	if err != nil {
		tenant.Die("a certificate: %v", err)
	}
	at := net.JoinHostPort(order["address"], order["port"])
	listener, err := quic.ListenAddr(at, identity, config())
	if err != nil {
		tenant.Die("listening: %v", err)
	}
	run := tenant.Begin(order)
	go func() {
		connection, err := listener.Accept(context.Background())
		if err != nil {
			run.Fail("accepting: %v", err)
			return
		}
		stream, err := connection.AcceptUniStream(context.Background())
		if err != nil {
			run.Fail("accepting a stream: %v", err)
			return
		}
		run.Receive(stream)
	}()
	run.Finish(func(*tenant.Run) {})
}

func identity() (*tls.Config, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	wanted := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, wanted, wanted, public, private)
	if err != nil {
		return nil, err
	}
	own := tls.Certificate{Certificate: [][]byte{certificate}, PrivateKey: private}
	return &tls.Config{Certificates: []tls.Certificate{own}, NextProtos: []string{protocol}}, nil
}
