//! A scenario for every word of the language. `<one|another>` stands for two scenarios.
//! `<ALGORITHM>`, `<ONE-SIDED>`, `<STACK>` and `<ROUTING>` stand for one scenario for each name in
//! a table of the code. A case without a network or traffic gets a dumbbell and bulk flows.

/// Read by every world.
pub const CASES: &[&str] = &[
    // The file as a whole.
    "name = 'a-name'\ntitle = 'A title'\nmirrors = 'a figure'\nseed = 2\nrepeats = 2\nwarmup = '1s'\nduration = '3s'\n\
     [short]\nduration = '1s'\n[variant.a]\ntitle = 'A'\n[variant.b]\nlike = 'a'\n\
     [expect]\nmuch = 'a.goodput_bps.sum > 1'\n[published]\nmuch = 'a.goodput_bps.sum ~ 2'\n\
     [[parameter]]\npath = 'sim.burst'\norigin = 'chosen: why'\nvalue = '2us'\nhalf = '1us'\ndouble = '4us'\n",
    "extends = 'base.toml'\n[network]\ntopology = 'dumbbell'\n",
    "[variant.a]\n<|network.host_switch.lossless = true\n>[lab]\nswitch = 'sluicegate'\n[tenant.default]\nkind = 'guest'\n\
     [expect]\nfew = 'a.vnics.all.drops == 0'\n",
    "[interval.part]\nstart = '3s'\nstop = '4s'\n",
    "[lab]\noffloads = true\n",
    "[tenant.default]\nkind = 'guest'\n[lab]\nswitch = '<ovs|ovs-dpdk>'\noffloads = true\n\
     [enforcement]\nhosts = 'all'\npolicy.rule = [{ algorithm = 'dctcp' }]\n",
    "[tenant.default]\nkind = '<guest|namespace>'\n[lab]\nswitch = '<bridge|sluicegate|ovs|ovs-dpdk>'\n\
     accept_cpu_bound = true\n",
    "[network]\ntopology = 'dumbbell'\nrate = '<100Mbit|1Gbit>'\n<|shared_buffer = '1MB'\nalpha = 2\n|delay = '1ms'\n|host_switch.lossless = true\nhost_switch.queue = '96KB'\n>\
     [tenant.default]\nkind = '<guest|namespace>'\n[lab]\nswitch = 'sluicegate'\nfabric = '<kernel|emulated>'\n",
    "[network]\ntopology = 'fat-tree'\nchildren = [8, 2]\nparents = [1, 1]\nrate = '100Mbit'\nexternal = <1|17>\n\
     [traffic.b]\nkind = 'bulk'\npairs = 'stride:1'\n\
     [tenant.default]\nkind = 'guest'\n[lab]\nswitch = 'sluicegate'\nfabric = 'emulated'\n",
    "[network]\ntopology = 'star'\n<hosts = 33|hosts = 3\ntenants_per_host = 11>\nrate = '100Mbit'\n\
     [traffic.b]\nkind = 'bulk'\npairs = 'stride:1'\n\
     [tenant.default]\nkind = 'guest'\n[lab]\nswitch = 'sluicegate'\nfabric = 'emulated'\n",
    "[network]\ntopology = 'dumbbell'\nrate = '100Mbit'\nrouting = 'flow-hash'\n\
     [traffic.b]\nkind = 'bulk'\nfrom = 's1'\nto = 'r1'\n<|routing = 'spray'\n>\
     [tenant.default]\nkind = 'guest'\n[lab]\nswitch = 'sluicegate'\nfabric = 'emulated'\n",
    "[network]\ntopology = 'k-ary-n-tree'\nk = 2\nn = 2\nrate = '100Mbit'\nrouting = '<ROUTING>'\n\
     [traffic.b]\nkind = 'bulk'\npairs = 'stride:1'\n\
     [tenant.default]\nkind = 'guest'\n[lab]\nswitch = 'sluicegate'\nfabric = 'emulated'\n",
    "[network]\ntopology = 'dumbbell'\nrate = '100Mbit'\n<|cee = {}\n>[tenant.default]\nkind = 'guest'\n\
     [lab]\nswitch = 'sluicegate'\nfabric = 'emulated'\n[enforcement]\nhosts = 'all'\n\
     [[enforcement.policy.rule]]\nalgorithm = 'dctcp'\n",
    "[tenant.default]\nkind = 'guest'\n[lab]\nswitch = '<bridge|sluicegate|ovs|ovs-dpdk>'\nguest_kernel = '<packaged|patched|holding>'\n",
    "[lab]\noffloads = <true|false>\nsteering = '<namespace|flow>'\n",
    "[network]\ntopology = 'dumbbell'\nhost_switch.lossless = <true|false>\n[tenant.default]\nkind = 'guest'\n\
     [lab]\nswitch = 'sluicegate'\n",
    "[sim]\nlink_delay = '2us'\ntransmit_delay = '2us'\nreceive_delay = '2us'\njitter = '0us'\njitter_mean = '0us'\n\
     burst = '1us'\nstart_spread = '1us'\nwake = ['1us', '2us']\nsockets = '<small-queues|turns|unlimited>'\n",
    // Topologies.
    "[network]\ntopology = 'star'\nhosts = 3\ntenants_per_host = 2\n[traffic.b]\nkind = 'bulk'\npairs = 'stride:1'\n",
    "[network]\ntopology = 'dumbbell'\npairs = 1\nrouting = '<ROUTING>'\nbottleneck = 'left-right'\n",
    "[network]\ntopology = 'dumbbell'\npairs = 300\n",
    "[network]\ntopology = 'star'\nhosts = 300\ntenants_per_host = 250\n[traffic.b]\nkind = 'bulk'\nfrom = 'h1-1'\nto = 'h2-1'\n",
    "[network]\ntopology = 'parking-lot'\nsenders = 2\n",
    "[network]\ntopology = 'fat-tree'\nchildren = [2, 2]\nparents = [1, <1|2>]\nexternal = 1\n\
     [traffic.b]\nkind = 'bulk'\npairs = 'stride:1'\n",
    "[network]\ntopology = 'k-ary-n-tree'\nk = 2\nn = <1|2>\n[traffic.b]\nkind = 'bulk'\npairs = 'stride:1'\n",
    "[network]\ntopology = 'crossbar'\n<hosts = 4|children = [2, 2]\nparents = [1, 2]|k = 2\nn = 2>\n\
     [traffic.b]\nkind = 'bulk'\npairs = 'stride:1'\n",
    "[network]\ntopology = 'graph'\nfile = 'graph.toml'\n[traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n",
    "[network]\ntopology = 'graph'\nlinks = [{ a = 'h1', b = 'x' }, { a = 'x', b = 'h2' }]\nswitches = ['x']\n\
     [traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n",
    "[network]\ntopology = 'graph'\nlinks = [{ a = 'h1', b = 'h2' }]\n[traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n",
    "[network]\ntopology = 'graph'\n\
     links = [{ a = 'h1', b = 's1', rate = '1Mbit', queue = '9KB', marking = { kind = 'none' } }, { a = 'h2', b = 's1' }]\n\
     [traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n",
    "[network]\ntopology = 'graph'\nlinks = [{ a = 'h1', b = 's1', <delay = '1ms'|bit_error_rate = 1e-9|\
     duplicate_rate = 0.1|reorder_rate = 0.1, reorder_delay = '1ms'> }, { a = 'h2', b = 's1' }]\n\
     [traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n",
    // Links and queues.
    "[network]\ntopology = 'dumbbell'\nrate = '1Mbit'\naccess_rate = '2Mbit'\nmtu = 9000\nip = <4|6>\nqueue = '90KB'\n\
     marking = { kind = 'none' }\n[network.link.left-right]\nrate = '1Mbit'\nqueue = '90KB'\n",
    "[network]\ntopology = 'dumbbell'\nmarking = { kind = 'threshold', k = '9KB', not_ect = '<drop|pass>' }\n\
     [network.link.left-right]\nmarking = { kind = 'threshold', k = '9KB', not_ect = '<drop|pass>' }\n",
    "[network]\ntopology = 'dumbbell'\nlink.left-right.marking = { kind = '<none|red>' }\nmarking = { kind = 'red', \
     min = '9KB', max = '10KB', p_max = 0.1, weight = 0.1, not_ect = 'pass', above_max = '<drop|mark>' }\n",
    "[network]\ntopology = 'dumbbell'\nlink.left-right.marking = { kind = 'red', \
     min = '9KB', max = '10KB', p_max = 0.1, weight = 0.1, not_ect = 'drop', above_max = '<drop|mark>' }\n",
    "[network]\ntopology = 'graph'\nlinks = [{ a = 'h1', b = 's1', marking = { kind = 'red', min = '9KB', max = '10KB', \
     p_max = 0.1, weight = 0.1, not_ect = '<drop|pass>', above_max = '<drop|mark>' } }, { a = 'h2', b = 's1', \
     marking = { kind = 'threshold', k = '9KB', not_ect = '<drop|pass>' } }]\n\
     [traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n",
    "[network]\ntopology = 'dumbbell'\nshared_buffer = '1MB'\nalpha = 2\n",
    "[network]\ntopology = 'dumbbell'\nrouting = '<flowlet|conga>'\nflowlet_gap = '1ms'\n",
    "[network]\ntopology = 'dumbbell'\nrouting = 'plb'\nrehash_rounds = 6\nidle_rehash_rounds = 0\n",
    "[network]\ntopology = 'dumbbell'\nrouting = 'flow-hash'\n\
     [traffic.b]\nkind = 'bulk'\nfrom = 's1'\nto = 'r1'\nrouting = '<flow-hash|packet-hash|spray|reps|plb>'\n",
    "[network]\ntopology = 'dumbbell'\nreroute_delay = '1ms'\n\
     [[event]]\nat = '3s'\n<link_down|link_up> = ['left-right']\n",
    "[network]\ntopology = 'dumbbell'\nvnic_queue = '1MB'\n",
    "[network]\ntopology = 'dumbbell'\n[network.host_switch]\nlossless = <true|false>\ntransmit_ring = '1MB'\n\
     receive_ring = '1MB'\narrival_ring = '1MB'\nuplink_queue = '1MB'\nrate = '1Gbit'\nframe_time = '1us'\n\
     receive_rate = '1Gbit'\n",
    "[network]\ntopology = 'dumbbell'\nhost_switch.lossless = <3|[0, 3]>\ncee.pfc.priorities = 'all'\n",
    "[network]\ntopology = 'dumbbell'\n<|link.left-right.>delay = '1ms'\n",
    "[network]\ntopology = 'dumbbell'\n<|link.left-right.>bit_error_rate = 1e-9\n",
    "[network]\ntopology = 'dumbbell'\n<|link.left-right.>duplicate_rate = 0.1\n",
    "[network]\ntopology = 'dumbbell'\nreorder_rate = 0.1\nreorder_delay = '1ms'\n",
    "[network]\ntopology = 'dumbbell'\nlink.left-right = { reorder_rate = 0.1, reorder_delay = '1ms' }\n",
    // Converged Ethernet.
    "[network]\ntopology = 'dumbbell'\nrouting = 'switch-adaptive'\nsplit = '<binary|fractional>'\ncongestion_timeout = '2ms'\n\
     [network.cee]\nresequence_buffer = '1MB'\n[network.cee.qcn]\nrate_limiters = <true|false>\n",
    "[network]\ntopology = 'dumbbell'\nrouting = '<r2c2|r3c2>'\nselect_path = '<next|random>'\ndrop_path = '<slowest|newest>'\n\
     path_timer = '2ms'\n[network.cee.qcn]\n",
    "[network]\ntopology = 'dumbbell'\nrouting = 'r3c2'\nlimit_paths = '<notified|exhausted>'\n[network.cee.qcn]\n",
    "[network]\ntopology = 'dumbbell'\n[network.cee]\nqcn = {}\nroutings = [{ priorities = [3, 4], \
     routing = '<d-mod-k|s-mod-k|flow-hash|packet-hash|random|spray|reps|drill>' }]\n",
    "[network]\ntopology = 'dumbbell'\n[network.cee]\nroutings = [{ priorities = 3, routing = 'flowlet', flowlet_gap = '1ms' }, \
     { priorities = 4, routing = 'plb', rehash_rounds = 6, idle_rehash_rounds = 0 }]\n",
    "[network]\ntopology = 'dumbbell'\n[network.cee]\nqcn = {}\nroutings = [{ priorities = 3, routing = 'switch-adaptive', \
     split = '<binary|fractional>', congestion_timeout = '2ms' }, { priorities = 4, routing = '<r2c2|r3c2>', \
     select_path = '<next|random>', drop_path = '<slowest|newest>', path_timer = '2ms' }]\n",
    "[network]\ntopology = 'dumbbell'\n[network.cee]\nqcn = {}\nroutings = [{ priorities = 3, routing = 'r3c2', \
     limit_paths = '<notified|exhausted>' }]\n",
    "[network]\ntopology = 'dumbbell'\nrate = '100Mbit'\n[network.cee]\nswitch = 'input'\nport_buffer = '1MB'\n\
     forwarding = '<cut-through|store-and-forward>'\nswitch_delay = '1us'\nadapter_delay = '1us'\nadapter_buffer = '1MB'\n\
     [network.cee.pfc]\npriorities = 'all'\nxoff = '90KB'\nxon = '80KB'\npause = 'ideal'\n\
     [tenant.default]\nkind = 'guest'\n[lab]\nswitch = 'sluicegate'\n",
    "[network]\ntopology = 'dumbbell'\nrate = '100Mbit'\n[network.cee]\nswitch = 'shared'\nmemory = '4MB'\nalpha = 2\n\
     adapter_buffer = '<512KB|unlimited>'\nresequence_buffer = '1MB'\n\
     [network.cee.pfc]\npriorities = [3]\npause = 'wire'\nresponse = '1us'\nheadroom = '100KB'\n\
     [tenant.default]\nkind = 'guest'\n[lab]\nswitch = 'sluicegate'\n",
    "[network]\ntopology = 'dumbbell'\nrate = '100Mbit'\n[network.cee.qcn]\nrate_limiters = <true|false>\npreset = '<thesis|standard>'\npriorities = 'all'\n\
     set_point = '20KB'\nweight = 2\ninterval = '100KB'\ngain = 0.01\nmin_decrease = 0.5\nmin_rate = '1Mbit'\n\
     fast_recovery = 5\nactive_increase = '5Mbit'\nhyper_increase = '50Mbit'\nbyte_limit = '150KB'\ntimer = '15ms'\n\
     extra_fast_recovery = false\nsampling = '<linear|steps>'\nnotification_priority = 6\n\
     [tenant.default]\nkind = 'guest'\n[lab]\nswitch = 'sluicegate'\n",
    "[network]\ntopology = 'dumbbell'\nrate = '100Mbit'\n[network.cee.ets]\n\
     classes = [{ priorities = 3, share = 100 }, { priorities = 'rest' }]\n\
     [traffic.b]\nkind = 'bulk'\npriority = 3\n<|[traffic.c]\nkind = 'bulk'\n>\
     [tenant.default]\nkind = 'guest'\n[lab]\nswitch = 'sluicegate'\n",
    "[network]\ntopology = 'dumbbell'\nrate = '<100Mbit|1Gbit>'\n<|link.left-right.>delay = '1ms'\ncee = {}\n\
     [tenant.default]\nkind = 'guest'\n[lab]\nswitch = 'sluicegate'\n",
    "[network]\ntopology = 'graph'\ncee = {}\n\
     links = [{ a = 'h1', b = 's1', rate = '1Mbit', delay = '1ms' }, { a = 'h2', b = 's1', rate = '1Mbit' }]\n\
     [traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n\
     [tenant.default]\nkind = 'guest'\n[lab]\nswitch = 'sluicegate'\n",
    // Tenants.
    "[tenant.default]\nkind = '<namespace|guest>'\necn = true\nreceive_buffer = '1MB'\n\
     congestion_control = '<STACK>'\n",
    "[tenant.s1]\ncongestion_control = 'bbr'\n",
    "[tenant.s1]\nkind = '<namespace|guest>'\nignore_window = true\n",
    "[tenant.s1]\nread_rate = '1Mbit'\n",
    "[tenant.'s*']\nprofile = '<linux|freebsd9>'\n",
    "[tenant.s1]\nkind = '<namespace|guest>'\nrecovery = '<rack|sack|newreno>'\n",
    "[tenant.s1]\nprr = '<advancing|safe>'\n",
    "[tenant.s1]\n<rto_initial|rto_min|rto_slop|delayed_ack> = '1ms'\n",
    "[tenant.s1]\n<connection_cache|pacing> = true\n",
    "[tenant.s1]\nprofile = 'freebsd9'\nconnection_cache_window = '<none|half|whole>'\n",
    "[tenant.s1]\noffload_segments = 8\n",
    // Traffic.
    "[traffic.b]\nkind = 'bulk'\nrate = '1Mbit'\nfrom = 's*'\nto = 'r1'\nconnections = 2\nstart = '1s'\nstop = '3s'\nport = 2000\n\
     pairs = '<all-to-one|all-to-all|random>'\n",
    "[traffic.b]\nkind = 'bulk'\nphases = [{ until = '3s', rate = '1Mbit' }, { rate = '2Mbit' }]\nclass = 'all'\n\
     deadline = '9s'\n",
    "[traffic.d]\nkind = 'datagrams'\nrate = '1Mbit'\nbytes = '1KB'\nsocket_buffer = '64KB'\n",
    "[traffic.d]\nkind = 'datagrams'\nburst = '9KB'\nload = '1Mbit'\narrivals = 'fixed'\n",
    "[traffic.d]\nkind = 'datagrams'\nbursts = 'background-medium'\ninterval = '10ms'\n",
    "[traffic.d]\nkind = 'datagrams'\nburst = '9KB'\narrivals = <'times.csv'|{ kind = 'fixed', interval = '10ms' }|\
     { kind = 'exponential', mean = '10ms' }|{ kind = 'lognormal', median = '5ms', sigma = 1.5 }>\n",
    "[network]\ntopology = 'star'\nhosts = 5\n[traffic.h]\nkind = 'hotspot'\ntype = 'input'\nto = 'h1'\n\
     link = 'switch-h1'\ndegree = '60%'\nseverity = 1.5\n",
    "[traffic.h]\nkind = 'hotspot'\ntype = 'input'\nto = 'r1'\nfrom = ['s1', 's2']\nrate = '800Mbit'\n\
     bytes = '1KB'\nsocket_buffer = '64KB'\nstart = '1s'\nstop = '2s'\n",
    "[traffic.h]\nkind = 'hotspot'\ntype = 'output'\nto = 'r1'\nfrom = ['s1']\nrate = '500Mbit'\ndrain = '100Mbit'\n",
    "[traffic.x]\nkind = 'blast'\nrate = '1Mbit'\nspan = '1MB'\n",
    "[traffic.p]\nkind = 'ping-pong'\nbytes = '64B'\ninterval = '1ms'\n",
    "[traffic.i]\nkind = 'incast'\nbytes = '64KB'\ninterval = '1ms'\ndeadline = '10ms'\n",
    "[traffic.m]\nkind = 'messages'\nbytes = '64KB'\ninterval = '10ms'\nclass = 'mice'\n",
    "[traffic.q]\nkind = 'queries'\nfrom = 's1'\nto = 'r1'\nworkers = 'r2'\nrequest = '1KB'\nbytes = '2KB'\n\
     queries = 5\narrivals = { kind = 'fixed', interval = '10ms' }\n",
    "[traffic.q]\nkind = 'queries'\nfrom = 's1'\nto = 'r*'\nrequest = '1KB'\nbytes = '<10B|2KB>'\nqueries = 5\n\
     connections = '<per-message|pool|one>'\narrivals = { kind = 'exponential', mean = '10ms' }\n",
    "[traffic.q]\nkind = 'queries'\nfrom = 's1'\nto = 'r1'\nrequest = '10B'\nbytes = '2KB'\n\
     arrivals = <'times.csv'|{ kind = 'fixed', interval = '10ms' }|{ kind = 'lognormal', median = '5ms', sigma = 1.5 }>\n",
    "[traffic.s]\nkind = 'shuffle'\nbytes = '1MB'\nparallel = 2\nclass = 'all'\n",
    "[traffic.t]\nkind = 'trace'\nsizes = 'websearch'\nload = '1Mbit'\nmax_bytes = '1MB'\n\
     classes = { mice = '10KB', large = 'rest' }\n",
    "[network]\ntopology = 'dumbbell'\npairs = 2\n[traffic.t]\nkind = 'trace'\nsizes = 'datamining'\nconcurrent = 2\n\
     from = '*'\nto = '*'\npairs = 'all-to-all'\nintra_rack = 0.5\n",
    "[traffic.t]\nkind = 'trace'\nsizes = 'hadoop'\n\
     arrivals = <'times.csv'|{ kind = 'fixed', interval = '10ms' }|{ kind = 'exponential', mean = '10ms' }|\
     { kind = 'lognormal', median = '5ms', sigma = 1.5 }>\n",
    "[traffic.p]\nkind = 'program'\ncollective = '<all-reduce|reduce-scatter|all-gather>'\nsize = '1MB'\n\
     algorithm = '<ring|halving-doubling>'\ntransport = 'tcp'\non = '*'\nranks = 4\nplacement = 'random'\neager = '4KB'\niterations = 2\n\
     compute = '1ms'\nhandshakes = '<before|counted>'\n",
    "[traffic.p]\nkind = 'program'\ncollective = '<all-reduce|broadcast>'\nalgorithm = 'tree'\nsize = '1MB'\nplacement = 'linear'\n",
    "[traffic.p]\nkind = 'program'\ncollective = 'all-to-all'\nalgorithm = 'pairwise'\nsize = '1MB'\n",
    "[network]\ntopology = 'dumbbell'\n[network.cee.pfc]\n[traffic.p]\nkind = 'program'\ncollective = 'broadcast'\n\
     size = '1MB'\ntransport = 'datagrams'\n",
    "[traffic.p]\nkind = 'program'\ncollective = 'barrier'\nalgorithm = 'dissemination'\n",
    "[traffic.p]\nkind = 'program'\ncollective = 'halo'\ngrid = [2, 2]\nsize = '1KB'\n",
    "[traffic.p]\nkind = 'program'\ncollective = 'shift'\ndistance = 2\nsize = '1KB'\n",
    "[traffic.p]\nkind = 'program'\nnas = { kernel = '<bt|cg|ft|is|mg>', class = '<a|b|c|d>', scale = 0.01 }\n",
    "[traffic.p]\nkind = 'program'\ngoal = 'program.goal'\nplacement = 'ranks.txt'\n",
    "[traffic.p]\nkind = 'program'\ntraining = { parameters = 1e6, layers = 4, hidden = 64, tokens = 128, value = '2B', \
     data = 2, tensor = 2, pipeline = 1, micro_batches = 2, flops = 1e12, <tensor_rate = '1Tbit'|\
     activations = 'ring'|activations = 'tree'|activations = 'halving-doubling'>, scale = 0.5 }\n",
    // Enforcement.
    "[enforcement]\nhosts = '<all|none>'\npolicy_file = 'policy.toml'\n",
    "[enforcement]\nhosts = ['s*']\n[enforcement.policy]\ntrusted = ['10.0.0.0/8']\n[[enforcement.policy.rule]]\n\
     name = 'a rule'\nsource = '10.0.1.0/24'\ndestination = 'any'\nport = 80\nmode = '<observe|enforce|off>'\n\
     algorithm = 'dctcp'\none_sided = 'dcvegas'\nfallback = 'cubic'\nbeta = 0.5\nbeta_growth = false\ng = '1/16'\nk = '<25us|9KB|6 packets>'\n\
     window_cap = '1MiB'\nrate_cap = '10Mbit'\nmss = '1460B'\nfloor_mss = 1\ninitial_window = 10\nrto_min = '200ms'\npolice = false\n\
     mptcp = '<pass|strip>'\n",
    "[enforcement]\nhosts = 'all'\n[[enforcement.policy.rule]]\nsource_port = 80\ndestination_port = '5000-5999'\n\
     algorithm = '<ALGORITHM>'\n",
    "[enforcement]\nhosts = 'all'\n[[enforcement.policy.rule]]\nalgorithm = 'dctcp'\n\
     one_sided = '<ONE-SIDED>'\n",
    "[enforcement]\nhosts = 'all'\n[[enforcement.policy.rule]]\nalgorithm = 'dctcp'\n\
     fallback = '<ALGORITHM>'\n",
    "[enforcement]\nhosts = 'all'\n[[enforcement.policy.rule]]\nalgorithm = 'dctcp'\nwindow = '64KB'\n\
     one_sided = 'fixed'\nfallback = 'fixed'\n",
    "[enforcement]\nhosts = 'all'\n[[enforcement.policy.rule]]\nalgorithm = 'fixed'\nwindow = '64KB'\n",
    "[enforcement]\nhosts = 'all'\n[[enforcement.policy.rule]]\nalgorithm = 'vegas'\nvegas_alpha = 2\nvegas_beta = 4\n",
    "[enforcement]\nhosts = 'all'\n[[enforcement.policy.rule]]\nalgorithm = 'swift'\nswift_target = '100us'\n\
     swift_range = '100us'\nswift_ai = 1\nswift_beta = 0.8\nswift_max_mdf = 0.5\n",
    // Events.
    "[enforcement]\nhosts = 'all'\n[[event]]\nat = '3s'\ndetach = ['r1']\n",
    "[[event]]\nat = '3s'\nbleach_ecn = true\n",
    "[[event]]\nat = '3s'\nfor = '1s'\nlink_down = ['left-right']\n",
    "[[event]]\nat = '3s'\nlink_up = ['left-right']\n",
    "[[event]]\nat = '3s'\nimpair = { links = ['left-*'], bit_error_rate = 1e-6, duplicate_rate = 0.1, \
     reorder_rate = 0.1, reorder_delay = '1ms' }\n",
    "[[event]]\nat = '3s'\nslow_link = { links = ['left-right'], rate = '1Mbit' }\n",
    "[[event]]\nat = '3s'\nfor = '1s'\npause_host = ['s1']\n",
    "[network]\ntopology = 'dumbbell'\n[network.cee]\n[[event]]\nat = '3s'\n<pause_storm|babble> = ['s1']\n",
    "[[event]]\nat = '3s'\nslow_receiver = { tenants = ['r1'], read_rate = '1Mbit' }\n",
];

/// Words that the language knows and that no scenario may say, with a scenario that does.
pub const NEVER: &[(&str, &str)] = &[
    (
        "enforcement.policy.bucket",
        "[[enforcement.policy.bucket]]\nclass = 'all'\nrate = '1Mbit'\n",
    ),
    (
        "enforcement.policy.rule[].interface",
        "[[enforcement.policy.rule]]\ninterface = 'eth0'\n",
    ),
    (
        "enforcement.policy.rule[].tenant",
        "[[enforcement.policy.rule]]\ntenant = 'blue'\n",
    ),
    (
        "enforcement.policy.rule[].vlan",
        "[[enforcement.policy.rule]]\nvlan = 7\n",
    ),
    (
        "network.cee.routings[].routing = \"conga\"",
        "[network]\ntopology = 'dumbbell'\n[network.cee]\nroutings = [{ priorities = 3, routing = 'conga' }]\n",
    ),
];
