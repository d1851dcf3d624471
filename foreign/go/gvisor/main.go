// A tenant of the lab with gVisor's network stack on a TAP, set up as gVisor's sandboxes have it: SACK, and a
// receive buffer that follows the flow.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"sluicegate/foreign/tenant"
)

const nic = 1

func main() {
	order := tenant.ReadOrder()
	netstack, err := build(order)
	if err != nil {
		tenant.Die("%v", err)
	}
	at := tcpip.FullAddress{NIC: nic, Port: uint16(order.Number("port"))}
	if order.Sends() {
		at.Addr = address(order["peer"])
		send(order, netstack, at)
	}
	receive(order, netstack, at)
}

func send(order tenant.Order, netstack *stack.Stack, peer tcpip.FullAddress) {
	run := tenant.Begin(order)
	go func() {
		connection, err := gonet.DialContextTCP(context.Background(), netstack, peer, ipv4.ProtocolNumber)
		if err != nil {
			run.Fail("connecting: %v", err)
			return
		}
		run.Send(connection)
	}()
	run.Finish(counters(netstack))
}

func receive(order tenant.Order, netstack *stack.Stack, at tcpip.FullAddress) {
	listener, err := gonet.ListenTCP(netstack, at, ipv4.ProtocolNumber)
	if err != nil {
		tenant.Die("listening: %v", err)
	}
	run := tenant.Begin(order)
	go func() {
		connection, err := listener.Accept()
		if err != nil {
			run.Fail("accepting: %v", err)
			return
		}
		run.Receive(io.Reader(connection))
	}()
	run.Finish(counters(netstack))
}

func counters(netstack *stack.Stack) func(*tenant.Run) {
	return func(run *tenant.Run) {
		tcp := netstack.Stats().TCP
		run.Count("segments_sent", tcp.SegmentsSent.Value())
		run.Count("retransmits", tcp.Retransmits.Value())
		run.Count("fast_retransmits", tcp.FastRetransmit.Value())
		run.Count("fast_recoveries", tcp.FastRecovery.Value())
		run.Count("sack_recoveries", tcp.SACKRecovery.Value())
		run.Count("tail_loss_recoveries", tcp.TLPRecovery.Value())
		run.Count("spurious_recoveries", tcp.SpuriousRecovery.Value())
		run.Count("spurious_timeouts", tcp.SpuriousRTORecovery.Value())
		run.Count("timeouts", tcp.Timeouts.Value())
		run.Count("slow_start_retransmits", tcp.SlowStartRetransmits.Value())
	}
}

func address(text string) tcpip.Address {
	parsed, err := netip.ParseAddr(text)
	if err != nil {
		tenant.Die("%v", err)
	}
	return tcpip.AddrFromSlice(parsed.AsSlice())
}

func build(order tenant.Order) (*stack.Stack, error) {
	netstack := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	sack := tcpip.TCPSACKEnabled(true)
	moderate := tcpip.TCPModerateReceiveBufferOption(true)
	for _, option := range []tcpip.SettableTransportProtocolOption{&sack, &moderate} {
		if err := netstack.SetTransportProtocolOption(tcp.ProtocolNumber, option); err != nil {
			return nil, fmt.Errorf("an option of TCP: %v", err)
		}
	}
	link, err := attach(order)
	if err != nil {
		return nil, err
	}
	if err := netstack.CreateNIC(nic, link); err != nil {
		return nil, fmt.Errorf("its interface: %v", err)
	}
	return netstack, place(order, netstack)
}

// place gives it its address and tells it its neighbour, for nothing is resolved in the lab.
func place(order tenant.Order, netstack *stack.Stack) error {
	own := tcpip.AddressWithPrefix{Address: address(order["address"]), PrefixLen: int(order.Number("prefix"))}
	protocol := tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: own}
	if err := netstack.AddProtocolAddress(nic, protocol, stack.AddressProperties{}); err != nil {
		return fmt.Errorf("its address: %v", err)
	}
	netstack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	mac, err := net.ParseMAC(order["peer-mac"])
	if err != nil {
		return err
	}
	neighbour := tcpip.LinkAddress(mac)
	if err := netstack.AddStaticNeighbor(nic, ipv4.ProtocolNumber, address(order["peer"]), neighbour); err != nil {
		return fmt.Errorf("its neighbour: %v", err)
	}
	return nil
}

func attach(order tenant.Order) (stack.LinkEndpoint, error) {
	tap, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(order["tap"])
	if err != nil {
		return nil, err
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(tap, unix.TUNSETIFF, request); err != nil {
		return nil, fmt.Errorf("TAP %s: %w", order["tap"], err)
	}
	if err := unix.SetNonblock(tap, true); err != nil {
		return nil, err
	}
	mac, err := net.ParseMAC(order["mac"])
	if err != nil {
		return nil, err
	}
	return fdbased.New(&fdbased.Options{
		FDs:                []int{tap},
		MTU:                uint32(order.Number("mtu")),
		EthernetHeader:     true,
		Address:            tcpip.LinkAddress(mac),
		PacketDispatchMode: fdbased.Readv,
	})
}
