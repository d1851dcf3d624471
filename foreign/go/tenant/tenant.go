// Package tenant is what a program needs to be a tenant of the lab: what it is told, the pattern
// that it sends or compares, and what it says at its end (crates/lab/src/foreign.rs).
package tenant

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Period after which the pattern repeats, and the most that one write takes.
const (
	period = 65521
	chunk  = 256 * 1024
)

// Order is what a program is told by its arguments, NAME=VALUE each.
type Order map[string]string

// ReadOrder reads the arguments.
func ReadOrder() Order {
	order := Order{}
	for _, argument := range os.Args[1:] {
		name, value, _ := strings.Cut(argument, "=")
		order[name] = value
	}
	return order
}

// Number is a value that has to be one.
func (order Order) Number(name string) int64 {
	number, err := strconv.ParseInt(order[name], 10, 64)
	if err != nil {
		Die("argument %s: %v", name, err)
	}
	return number
}

// Sends says whether it is the sender.
func (order Order) Sends() bool { return order["role"] == "send" }

// Die says to the lab what makes it impossible to go on, and ends.
func Die(format string, arguments ...any) {
	fmt.Println("error " + strings.ReplaceAll(fmt.Sprintf(format, arguments...), "\n", " "))
	os.Exit(1)
}

// Seen is what it says at the end.
type Seen struct {
	Bytes         int64    `json:"bytes"`
	MeasuredBytes int64    `json:"measured_bytes"`
	VerifiedBytes int64    `json:"verified_bytes"`
	LongestGapMs  float64  `json:"longest_gap_ms"`
	Errors        []string `json:"errors"`
	// The counters of the stack, by names of its own.
	Counters map[string]uint64 `json:"counters"`
}

// Run is one run: its clock, and what was seen until now.
type Run struct {
	order   Order
	start   time.Time
	begin   time.Duration
	end     time.Duration
	stop    time.Duration
	pattern []byte

	lock sync.Mutex
	seen Seen
	last time.Duration
}

// Begin says that all is ready, and waits for the start that the lab names. The process ends with its stdin.
func Begin(order Order) *Run {
	run := &Run{
		order:   order,
		begin:   time.Duration(order.Number("begin-ns")),
		end:     time.Duration(order.Number("end-ns")),
		stop:    time.Duration(order.Number("stop-ns")),
		pattern: pattern(),
		seen:    Seen{Errors: []string{}, Counters: map[string]uint64{}},
	}
	fmt.Println("ready")
	input := bufio.NewReader(os.Stdin)
	line, err := input.ReadString('\n')
	if err != nil {
		os.Exit(1)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(strings.TrimPrefix(line, "start ")), 10, 64)
	if err != nil {
		Die("expected `start NS`, got %q", line)
	}
	go func() {
		_, _ = io.Copy(io.Discard, input)
		os.Exit(0)
	}()
	run.start = time.Unix(0, ns)
	time.Sleep(time.Until(run.start))
	return run
}

// Now is the time since the start.
func (run *Run) Now() time.Duration { return time.Since(run.start) }

// Stop is when the run ends.
func (run *Run) Stop() time.Time { return run.start.Add(run.stop) }

// Fail notes what went wrong.
func (run *Run) Fail(format string, arguments ...any) {
	run.lock.Lock()
	defer run.lock.Unlock()
	run.seen.Errors = append(run.seen.Errors, fmt.Sprintf(format, arguments...))
}

// Send writes the pattern until the run ends.
func (run *Run) Send(stream io.Writer) {
	position := int64(0)
	for run.Now() < run.stop {
		phase := position % period
		count, err := stream.Write(run.pattern[phase : phase+chunk/4])
		position += int64(count)
		run.lock.Lock()
		run.seen.Bytes = position
		run.lock.Unlock()
		if err != nil {
			run.failBeforeEnd("sending: %v", err)
			return
		}
	}
}

// Receive reads and compares until the stream ends.
func (run *Run) Receive(stream io.Reader) {
	buffer := make([]byte, chunk)
	for {
		count, err := stream.Read(buffer)
		if count > 0 && !run.count(buffer[:count]) {
			return
		}
		if err == io.EOF {
			run.failBeforeEnd("the peer closed the connection")
			return
		}
		if err != nil {
			run.failBeforeEnd("receiving: %v", err)
			return
		}
	}
}

func (run *Run) failBeforeEnd(format string, arguments ...any) {
	if run.Now() < run.stop {
		run.Fail(format, arguments...)
	}
}

// count takes what arrived into account; false = it is not what was sent.
func (run *Run) count(data []byte) bool {
	now := run.Now()
	phase := run.seen.Bytes % period
	if !bytes.Equal(data, run.pattern[phase:phase+int64(len(data))]) {
		run.Fail("payload differs behind byte %d of the stream", run.seen.Bytes)
		return false
	}
	run.lock.Lock()
	defer run.lock.Unlock()
	run.seen.Bytes += int64(len(data))
	run.seen.VerifiedBytes = run.seen.Bytes
	if run.begin <= now && now < run.end {
		run.seen.MeasuredBytes += int64(len(data))
		run.gap(now)
	}
	return true
}

// gap: nothing has arrived between the last time and now.
func (run *Run) gap(now time.Duration) {
	gap := now - max(run.last, run.begin)
	run.seen.LongestGapMs = max(run.seen.LongestGapMs, gap.Seconds()*1e3)
	run.last = now
}

// Count sets a counter of the stack's.
func (run *Run) Count(name string, value uint64) {
	run.lock.Lock()
	defer run.lock.Unlock()
	run.seen.Counters[name] = value
}

// Finish waits for the end of the run, says what was seen, and stays until the lab is done with everybody.
func (run *Run) Finish(counters func(run *Run)) {
	time.Sleep(time.Until(run.Stop()))
	counters(run)
	run.lock.Lock()
	if !run.order.Sends() {
		run.gap(run.end)
	}
	line, err := json.Marshal(run.seen)
	run.lock.Unlock()
	if err != nil {
		Die("the report: %v", err)
	}
	fmt.Println(string(line))
	select {}
}

// pattern is that of crates/lab/src/tenant/pattern.rs: xorshift64, repeated so that any phase has a chunk.
func pattern() []byte {
	state := uint64(0x9e3779b97f4a7c15)
	all := make([]byte, 0, period+chunk)
	for range period {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		all = append(all, byte(state>>32))
	}
	for len(all) < period+chunk {
		all = append(all, all[:min(period, period+chunk-len(all))]...)
	}
	return all
}
