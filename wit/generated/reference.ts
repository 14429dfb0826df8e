// Generated from wit/*.wit by `npm run generate`. Do not edit: a test compares this file with its source.
import type { ContractReference } from '../generate/reference.ts';

export const reference: ContractReference = {
 "package": "pie:inferlet",
 "version": "0.1.0",
 "docs": "A user's program: it drives inference through the imports and streams to its client.",
 "introduction": "A call that gives a `result` tells its errors in it. Those that it names are listed with it; besides, any call may answer `invalid-argument`, `not-owned`, `dependency-failed` (an earlier call of its queue failed), `cancelled`, `deadline-exceeded`, `terminated`, `unavailable` and `internal`. A call of a trait that the model lacks, or without its grant, is `unsupported`: `runtime.model-traits` tells before. Within one version of the contract calls are only added.",
 "interfaces": [
  {
   "name": "types",
   "id": "pie:inferlet/types@0.1.0",
   "docs": "Types that every interface shares. An inferlet has at most 1,024 calls of the platform's stores, messages, files, children and network under way, with\n32 MiB in them, and 32 MiB of their results unread: past that a call is `limit-exceeded` until some were read, or dropped.",
   "needs": "Always there.",
   "types": [
    {
     "name": "error",
     "kind": "variant",
     "docs": "Why a call failed. The text says what happened and what to do about it; programs match on the case.",
     "members": [
      {
       "name": "invalid-argument",
       "type": "string",
       "docs": "An argument has the wrong shape or value (lengths that differ, a token id outside the vocabulary, a slot past the page)."
      },
      {
       "name": "not-owned",
       "type": "string",
       "docs": "An address that this inferlet does not hold: never allocated, freed, or of another model."
      },
      {
       "name": "unsupported",
       "type": "string",
       "docs": "The model, this host or the function's grants do not offer the call. Ask `runtime.model-traits` first, or read what the manifest may grant."
      },
      {
       "name": "not-found",
       "type": "string",
       "docs": "No such model, name or invocation."
      },
      {
       "name": "limit-exceeded",
       "type": "string",
       "docs": "A limit of the deployment or the tenant (pages, tokens, output, memory) would be passed."
      },
      {
       "name": "context-overflow",
       "type": "string",
       "docs": "The context would pass the model's trained length, or the out-pages have no empty slot left."
      },
      {
       "name": "dependency-failed",
       "type": "string",
       "docs": "An earlier call that this one depends on failed; the text names its cause."
      },
      {
       "name": "cancelled",
       "type": "string",
       "docs": "The invocation was cancelled by its client or its parent."
      },
      {
       "name": "deadline-exceeded",
       "type": "string",
       "docs": "The invocation's deadline passed."
      },
      {
       "name": "terminated",
       "type": "string",
       "docs": "The platform took the inferlet's memory back (first come, first served termination)."
      },
      {
       "name": "unavailable",
       "type": "string",
       "docs": "Cannot be had now, and perhaps later: somebody else holds it (a lock, room, a worker that is busy), or the device or its process is\ngone, and everything that it held is lost."
      },
      {
       "name": "closed",
       "type": "string",
       "docs": "The other end of a session has closed."
      },
      {
       "name": "internal",
       "type": "string",
       "docs": "A fault of the platform itself."
      }
     ]
    }
   ],
   "calls": []
  },
  {
   "name": "runtime",
   "id": "pie:inferlet/runtime@0.1.0",
   "docs": "What an inferlet may know of itself and of the platform. Every call here is answered at once, in about a microsecond, except `sleep`.",
   "needs": "Always there.",
   "types": [
    {
     "name": "log-level",
     "kind": "enum",
     "docs": "",
     "members": [
      {
       "name": "debug",
       "type": "",
       "docs": ""
      },
      {
       "name": "info",
       "type": "",
       "docs": ""
      },
      {
       "name": "warn",
       "type": "",
       "docs": ""
      },
      {
       "name": "error",
       "type": "",
       "docs": ""
      }
     ]
    },
    {
     "name": "model-info",
     "kind": "record",
     "docs": "One model that this inferlet was granted.",
     "members": [
      {
       "name": "name",
       "type": "string",
       "docs": ""
      },
      {
       "name": "context-length",
       "type": "u32",
       "docs": "Tokens that the model was trained to see at once."
      },
      {
       "name": "vocabulary-size",
       "type": "u32",
       "docs": ""
      },
      {
       "name": "page-size",
       "type": "u32",
       "docs": "Slots of one KV page."
      },
      {
       "name": "traits",
       "type": "list<string>",
       "docs": "Names of the interfaces that the model offers, such as `forward` or `fused`."
      }
     ]
    },
    {
     "name": "model-metadata",
     "kind": "record",
     "docs": "What a model is, from its own configuration.",
     "members": [
      {
       "name": "architecture",
       "type": "string",
       "docs": "As its configuration names it, such as `LlamaForCausalLM`."
      },
      {
       "name": "parameters",
       "type": "u64",
       "docs": "Weights, embeddings included."
      },
      {
       "name": "layers",
       "type": "u32",
       "docs": ""
      },
      {
       "name": "hidden-size",
       "type": "u32",
       "docs": ""
      },
      {
       "name": "attention-heads",
       "type": "u32",
       "docs": ""
      },
      {
       "name": "key-value-heads",
       "type": "u32",
       "docs": ""
      },
      {
       "name": "head-size",
       "type": "u32",
       "docs": ""
      },
      {
       "name": "bits",
       "type": "u32",
       "docs": "Bits of a weight as the device holds it."
      }
     ]
    }
   ],
   "calls": [
    {
     "name": "version",
     "signature": "version: func() -> string",
     "docs": "Version of the contract that the host implements, such as `0.1.0`.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_runtime_version"
    },
    {
     "name": "instance-id",
     "signature": "instance-id: func() -> string",
     "docs": "Id of this invocation, the one that its client sees.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_runtime_instance_id"
    },
    {
     "name": "tenant",
     "signature": "tenant: func() -> string",
     "docs": "",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_runtime_tenant"
    },
    {
     "name": "get-arguments",
     "signature": "get-arguments: func() -> string",
     "docs": "The request body, as `run` gets it: for guests that do not keep it.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_runtime_get_arguments"
    },
    {
     "name": "function-name",
     "signature": "function-name: func() -> string",
     "docs": "",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_runtime_function_name"
    },
    {
     "name": "function-version",
     "signature": "function-version: func() -> string",
     "docs": "",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_runtime_function_version"
    },
    {
     "name": "models",
     "signature": "models: func() -> list<model-info>",
     "docs": "The models granted to this function; the first is its default.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_runtime_models"
    },
    {
     "name": "model-traits",
     "signature": "model-traits: func(model: string) -> result<list<string>, error>",
     "docs": "Interfaces that a model offers.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_runtime_model_traits"
    },
    {
     "name": "metadata",
     "signature": "metadata: func(model: string) -> result<model-metadata, error>",
     "docs": "What a model is. `not-found` for one that was not granted.",
     "cost": "Answered at once.",
     "errors": [
      "not-found"
     ],
     "c": "pie_runtime_metadata"
    },
    {
     "name": "debug-query",
     "signature": "debug-query: func(query: string) -> result<string, error>",
     "docs": "What the platform knows of this inferlet, as JSON text, for finding faults: `limits`, `usage` (CPU, tokens, calls), `pages` (held, by\nmodel), `grants`, `models`, or `all`. `invalid-argument` for another query.",
     "cost": "Answered at once.",
     "errors": [
      "invalid-argument"
     ],
     "c": "pie_runtime_debug_query"
    },
    {
     "name": "log",
     "signature": "log: func(level: log-level, message: string)",
     "docs": "Writes a line into the function's log and the invocation's event stream.",
     "cost": "Issued without waiting; errors show at what depends on it.",
     "errors": [],
     "c": "pie_runtime_log"
    },
    {
     "name": "is-cancelled",
     "signature": "is-cancelled: func() -> bool",
     "docs": "Whether the client, the parent or the platform has asked this inferlet to stop.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_runtime_is_cancelled"
    },
    {
     "name": "time-left",
     "signature": "time-left: func() -> u64",
     "docs": "Milliseconds of wall time left before the deadline.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_runtime_time_left"
    },
    {
     "name": "now",
     "signature": "now: func() -> u64",
     "docs": "Milliseconds since the Unix epoch.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_runtime_now"
    },
    {
     "name": "random",
     "signature": "random: func() -> u32",
     "docs": "32 random bits from the host's generator.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_runtime_random"
    },
    {
     "name": "sleep",
     "signature": "sleep: func(milliseconds: u32) -> future<result<_, error>>",
     "docs": "Completes after the given time, or earlier with `cancelled` or `deadline-exceeded`.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "cancelled",
      "deadline-exceeded"
     ],
     "c": "pie_runtime_sleep"
    }
   ]
  },
  {
   "name": "session",
   "id": "pie:inferlet/session@0.1.0",
   "docs": "The conversation with the client that invoked this inferlet. Sending costs some microseconds; `flush` a round trip to the event log, about a\nmillisecond.",
   "needs": "Always there.",
   "types": [
    {
     "name": "message",
     "kind": "variant",
     "docs": "",
     "members": [
      {
       "name": "text",
       "type": "string",
       "docs": ""
      },
      {
       "name": "bytes",
       "type": "list<u8>",
       "docs": ""
      }
     ]
    }
   ],
   "calls": [
    {
     "name": "send",
     "signature": "send: func(message: message) -> result<_, error>",
     "docs": "Sends one `message` event. It is queued and returns at once; a queue past its bound (1 MiB not yet written, each event counted with 256 bytes more) answers\n`limit-exceeded`: await `flush` and send again.",
     "cost": "Answered at once.",
     "errors": [
      "limit-exceeded"
     ],
     "c": "pie_session_send"
    },
    {
     "name": "flush",
     "signature": "flush: func() -> future<result<_, error>>",
     "docs": "Completes when everything sent so far is in the invocation's event log.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_session_flush"
    },
    {
     "name": "receive",
     "signature": "receive: func() -> future<result<message, error>>",
     "docs": "The next message of the client, in order. `closed` once the client can send no more.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "closed"
     ],
     "c": "pie_session_receive"
    }
   ]
  },
  {
   "name": "queue",
   "id": "pie:inferlet/queue@0.1.0",
   "docs": "A logical order of calls on one model. Calls are issued without waiting and run in queue order; between queues there is no order.\nA call that fails, fails every later call of its queue that depends on it, with its cause; `synchronize` reports the first error.\nIssuing a call costs some microseconds; waiting for one a round trip to the device's host, about 0.1 ms, besides what it computes.",
   "needs": "Always there.",
   "types": [
    {
     "name": "queue",
     "kind": "resource",
     "docs": "",
     "members": []
    }
   ],
   "calls": [
    {
     "name": "queue.constructor",
     "signature": "constructor(model: string)",
     "docs": "The pages and embeds used with this queue belong to `model`. An unknown model makes every call on the queue fail with `not-found`.",
     "cost": "Issued without waiting.",
     "errors": [
      "not-found"
     ],
     "c": "pie_queue_new"
    },
    {
     "name": "queue.set-priority",
     "signature": "set-priority: func(priority: s32)",
     "docs": "Higher goes first within a batch; 0 by default; the host clamps it to the tenant's range.",
     "cost": "Issued without waiting; errors show at what depends on it.",
     "errors": [],
     "c": "pie_queue_set_priority"
    },
    {
     "name": "queue.synchronize",
     "signature": "synchronize: func() -> future<result<_, error>>",
     "docs": "Completes after every earlier call of this queue, with the first error since the last `synchronize`.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_queue_synchronize"
    }
   ]
  },
  {
   "name": "allocate",
   "id": "pie:inferlet/allocate@0.1.0",
   "docs": "Memory of the model's device. Addresses are `u32`s in the inferlet's own space, one space a model, never reused within an invocation.\nA KV page has `page-size` slots; a slot holds a key, a value, a position and the flags *filled* and *masked*.\nAn embed holds one token's embedding or one output state, and a position: the token's, or for a state the one after its input's,\nso that a state can be fed back as the next input.\nAllocating, freeing, sharing and copying travel with the calls around them and cost no round trip; names (export, import, …) cost one each, and\npersistent ones the disk's time.",
   "needs": "Trait `allocate` of the model.",
   "types": [
    {
     "name": "export-info",
     "kind": "record",
     "docs": "A snapshot of pages under a name, kept by the tenant.",
     "members": [
      {
       "name": "name",
       "type": "string",
       "docs": ""
      },
      {
       "name": "pages",
       "type": "u32",
       "docs": ""
      },
      {
       "name": "tokens",
       "type": "u32",
       "docs": "Filled slots."
      },
      {
       "name": "next-position",
       "type": "u32",
       "docs": "One past the largest position."
      },
      {
       "name": "persistent",
       "type": "bool",
       "docs": "Whether it survives a restart of the device's host."
      }
     ]
    },
    {
     "name": "imported",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "pages",
       "type": "list<u32>",
       "docs": ""
      },
      {
       "name": "tokens",
       "type": "u32",
       "docs": ""
      },
      {
       "name": "next-position",
       "type": "u32",
       "docs": ""
      }
     ]
    }
   ],
   "calls": [
    {
     "name": "page-size",
     "signature": "page-size: func(queue: borrow<queue>) -> u32",
     "docs": "Slots of one KV page (8 to 32, 16 by default).",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_allocate_page_size"
    },
    {
     "name": "allocate-pages",
     "signature": "allocate-pages: func(queue: borrow<queue>, count: u32) -> result<list<u32>, error>",
     "docs": "Addresses of `count` empty pages. The memory is claimed in queue order; when it cannot be had the calls that use it fail.\n`limit-exceeded` at once when the invocation's page limit would be passed.",
     "cost": "Answered at once.",
     "errors": [
      "limit-exceeded"
     ],
     "c": "pie_allocate_pages"
    },
    {
     "name": "free-pages",
     "signature": "free-pages: func(queue: borrow<queue>, pages: list<u32>)",
     "docs": "Gives pages back after the earlier calls of the queue. A shared page stays with its other holders.",
     "cost": "Issued without waiting; errors show at what depends on it.",
     "errors": [],
     "c": "pie_allocate_free_pages"
    },
    {
     "name": "allocate-embeds",
     "signature": "allocate-embeds: func(queue: borrow<queue>, count: u32) -> result<list<u32>, error>",
     "docs": "Addresses of `count` embeds.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_allocate_embeds"
    },
    {
     "name": "free-embeds",
     "signature": "free-embeds: func(queue: borrow<queue>, embeds: list<u32>)",
     "docs": "",
     "cost": "Issued without waiting; errors show at what depends on it.",
     "errors": [],
     "c": "pie_allocate_free_embeds"
    },
    {
     "name": "share-pages",
     "signature": "share-pages: func(queue: borrow<queue>, pages: list<u32>) -> result<list<u32>, error>",
     "docs": "New addresses for the same pages, copy-on-write: a later write through either address copies first. Masks start as the source's\nand belong to the address from then on.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_allocate_share_pages"
    },
    {
     "name": "copy-slots",
     "signature": "copy-slots: func(queue: borrow<queue>, source: u32, source-offset: u32, destination: u32, destination-offset: u32, count: u32, shift: s32)",
     "docs": "Copies `count` slots (key, value, position, filled, masked) from a page to another or the same. `shift` is added to each copied\nslot's position and its key is rotated on by as much; the position may pass the trained context. `unsupported` when the model's\nrotation cannot be shifted.",
     "cost": "Issued without waiting; errors show at what depends on it.",
     "errors": [
      "unsupported"
     ],
     "c": "pie_allocate_copy_slots"
    },
    {
     "name": "copy-tokens",
     "signature": "copy-tokens: func(queue: borrow<queue>, sources: list<u32>, indices: list<u32>, destinations: list<u32>, positions: list<u32>)",
     "docs": "Copies single tokens: `indices` count the filled slots of `sources`, in order; their keys and values go to the empty slots of\n`destinations`, in order. `positions`, one a token, are their new positions (keys are rotated to them); empty keeps the old ones.",
     "cost": "Issued without waiting; errors show at what depends on it.",
     "errors": [],
     "c": "pie_allocate_copy_tokens"
    },
    {
     "name": "copy-embeds",
     "signature": "copy-embeds: func(queue: borrow<queue>, sources: list<u32>, destinations: list<u32>)",
     "docs": "Copies embeds one to one.",
     "cost": "Issued without waiting; errors show at what depends on it.",
     "errors": [],
     "c": "pie_allocate_copy_embeds"
    },
    {
     "name": "export-pages",
     "signature": "export-pages: func(queue: borrow<queue>, pages: list<u32>, name: string, persistent: bool) -> future<result<_, error>>",
     "docs": "Freezes a snapshot of `pages` (with their masks) under `name` in the tenant, after the earlier calls that write them; later writes\ncopy. It outlives this inferlet and counts against the tenant. `persistent` ones are on disk when the future completes.\n`invalid-argument` when the name is taken or is no name (1 to 128 characters of letters, digits, `.`, `_`, `-`, `/`).",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "invalid-argument"
     ],
     "c": "pie_allocate_export_pages"
    },
    {
     "name": "import-pages",
     "signature": "import-pages: func(queue: borrow<queue>, name: string) -> future<result<imported, error>>",
     "docs": "Maps the pages of an export, copy-on-write. `not-found` without such a name; `invalid-argument` for a persistent one that another\nmodel or build made.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "not-found",
      "invalid-argument"
     ],
     "c": "pie_allocate_import_pages"
    },
    {
     "name": "unexport",
     "signature": "unexport: func(queue: borrow<queue>, name: string) -> future<result<_, error>>",
     "docs": "Removes a name; who has imported it keeps its pages.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_allocate_unexport"
    },
    {
     "name": "list-exports",
     "signature": "list-exports: func(queue: borrow<queue>) -> future<result<list<export-info>, error>>",
     "docs": "The tenant's exports of this model, by name.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_allocate_list_exports"
    }
   ]
  },
  {
   "name": "forward",
   "id": "pie:inferlet/forward@0.1.0",
   "docs": "The transformer over KV pages. A forward returns at once and is computed in a batch with those of others: decoding costs a share of reading the\nweights once, prefill is bound by arithmetic, about two operations a weight and input.",
   "needs": "Trait `forward` of the model.",
   "types": [
    {
     "name": "mask",
     "kind": "record",
     "docs": "Which keys each input may see, run-length encoded. Row i belongs to input i and covers first the filled slots of the in-pages, in\norder, then the inputs. A row is a list of run lengths that alternate hidden, visible, hidden, … starting with hidden (0 when the row\nstarts visible), whose sum is the row's width.",
     "members": [
      {
       "name": "runs",
       "type": "list<u32>",
       "docs": "The runs of all rows, one row after another."
      },
      {
       "name": "row-lengths",
       "type": "list<u32>",
       "docs": "How many runs each row has."
      }
     ]
    }
   ],
   "calls": [
    {
     "name": "forward",
     "signature": "forward: func(queue: borrow<queue>, in-pages: list<u32>, in-embeds: list<u32>, out-pages: list<u32>, out-embeds: list<u32>, mask: option<mask>)",
     "docs": "Computes `in-embeds` over the filled, unmasked slots of `in-pages` and over each other. The i-th input's key and value go to the i-th\nempty slot of `out-pages`, in order; without out-pages they live for this call only. A page may be both in and out: its filled\nslots are read first. The states of the last `out-embeds.length` inputs are written to `out-embeds`.\nWithout a mask, a key is visible when its position is smaller than the query's, or it is the query's own.",
     "cost": "Issued without waiting; errors show at what depends on it.",
     "errors": [],
     "c": "pie_forward"
    },
    {
     "name": "mask-page",
     "signature": "mask-page: func(queue: borrow<queue>, page: u32, slots: u32)",
     "docs": "Masks the slots of a page whose bit is set in `slots` (bit 0 is slot 0), and unmasks the others. It changes this address only.",
     "cost": "Issued without waiting; errors show at what depends on it.",
     "errors": [],
     "c": "pie_forward_mask_page"
    }
   ]
  },
  {
   "name": "input-text",
   "id": "pie:inferlet/input-text@0.1.0",
   "docs": "Tokens to embeds. It travels with the forward behind it and costs no time of its own.",
   "needs": "Trait `input-text` of the model.",
   "types": [],
   "calls": [
    {
     "name": "embed-text",
     "signature": "embed-text: func(queue: borrow<queue>, tokens: list<u32>, positions: list<u32>, embeds: list<u32>)",
     "docs": "Writes the embedding of `tokens[i]`, at `positions[i]`, into `embeds[i]`. The three lists are equally long.",
     "cost": "Issued without waiting; errors show at what depends on it.",
     "errors": [],
     "c": "pie_input_text_embed_text"
    }
   ]
  },
  {
   "name": "output-text",
   "id": "pie:inferlet/output-text@0.1.0",
   "docs": "States to tokens. Asked in the same queue right behind the forward that writes the state, it is answered by the same device step.",
   "needs": "Trait `output-text` of the model.",
   "types": [
    {
     "name": "distribution",
     "kind": "record",
     "docs": "The most probable tokens, most probable first. Equal logits are ordered by token id.",
     "members": [
      {
       "name": "tokens",
       "type": "list<u32>",
       "docs": ""
      },
      {
       "name": "log-probabilities",
       "type": "list<f32>",
       "docs": "Natural logarithms of the probabilities over the whole vocabulary, at temperature 1."
      }
     ]
    }
   ],
   "calls": [
    {
     "name": "next-distribution",
     "signature": "next-distribution: func(queue: borrow<queue>, embed: u32, top-k: u32) -> future<result<distribution, error>>",
     "docs": "Distribution of the token that follows the state in `embed`, cut to the `top-k` most probable (1 to the tenant's cap, 256 by default).",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_output_text_next_distribution"
    },
    {
     "name": "log-probabilities",
     "signature": "log-probabilities: func(queue: borrow<queue>, embed: u32, tokens: list<u32>) -> future<result<list<f32>, error>>",
     "docs": "Natural logarithms of the probabilities of `tokens` after the state in `embed`, over the whole vocabulary at temperature 1.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_output_text_log_probabilities"
    },
    {
     "name": "entropy",
     "signature": "entropy: func(queue: borrow<queue>, embed: u32) -> future<result<f32, error>>",
     "docs": "Entropy of the distribution after the state in `embed`, in nats.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_output_text_entropy"
    },
    {
     "name": "read-embed",
     "signature": "read-embed: func(queue: borrow<queue>, embed: u32) -> future<result<list<f32>, error>>",
     "docs": "The values of an embed: a token's embedding or a state, as many as the model's hidden size.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_output_text_read_embed"
    }
   ]
  },
  {
   "name": "fused",
   "id": "pie:inferlet/fused@0.1.0",
   "docs": "Embed, forward and sample in one call: a token costs one crossing, and with `run` less than one.",
   "needs": "Trait `fused` of the model.",
   "types": [
    {
     "name": "sampler",
     "kind": "record",
     "docs": "How the device picks a token. `temperature` 0 is greedy and ignores the rest; `top-p` 1 and `min-p` 0 switch that cut off,\n`top-k` 0 takes the host's cap (256 by default). Cuts apply in the order top-k, top-p, min-p, to probabilities after the temperature.\nEqual seeds give equal tokens: the draw depends on the seed and the input's position only.",
     "members": [
      {
       "name": "temperature",
       "type": "f32",
       "docs": ""
      },
      {
       "name": "top-k",
       "type": "u32",
       "docs": ""
      },
      {
       "name": "top-p",
       "type": "f32",
       "docs": ""
      },
      {
       "name": "min-p",
       "type": "f32",
       "docs": ""
      },
      {
       "name": "seed",
       "type": "u32",
       "docs": ""
      }
     ]
    },
    {
     "name": "output",
     "kind": "variant",
     "docs": "What a step hands back for each of its last `rows` inputs.",
     "members": [
      {
       "name": "none",
       "type": "",
       "docs": "Nothing: fill the cache only."
      },
      {
       "name": "sample",
       "type": "sampler",
       "docs": "One sampled token a row."
      },
      {
       "name": "distributions",
       "type": "u32",
       "docs": "The `top-k` most probable a row."
      }
     ]
    },
    {
     "name": "step-request",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "tokens",
       "type": "list<u32>",
       "docs": ""
      },
      {
       "name": "positions",
       "type": "list<u32>",
       "docs": ""
      },
      {
       "name": "in-pages",
       "type": "list<u32>",
       "docs": ""
      },
      {
       "name": "out-pages",
       "type": "list<u32>",
       "docs": ""
      },
      {
       "name": "mask",
       "type": "option<mask>",
       "docs": ""
      },
      {
       "name": "rows",
       "type": "u32",
       "docs": "Inputs, counted from the last, that get an output."
      },
      {
       "name": "output",
       "type": "output",
       "docs": ""
      }
     ]
    },
    {
     "name": "step-result",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "tokens",
       "type": "list<u32>",
       "docs": "One token a row for `sample`, else empty."
      },
      {
       "name": "distributions",
       "type": "list<distribution>",
       "docs": "One a row for `distributions`, else empty."
      }
     ]
    },
    {
     "name": "run-request",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "token",
       "type": "u32",
       "docs": "First input and its position; each later input is the token sampled before it, at the next position."
      },
      {
       "name": "position",
       "type": "u32",
       "docs": ""
      },
      {
       "name": "pages",
       "type": "list<u32>",
       "docs": "Read and appended to, in order: the sequence's pages with room for `max-tokens` more."
      },
      {
       "name": "max-tokens",
       "type": "u32",
       "docs": ""
      },
      {
       "name": "sampler",
       "type": "sampler",
       "docs": ""
      },
      {
       "name": "stop-tokens",
       "type": "list<u32>",
       "docs": "Decoding stops after one of these was sampled (it is handed over as the last token; its key and value are not in the cache)."
      }
     ]
    },
    {
     "name": "finish-reason",
     "kind": "enum",
     "docs": "",
     "members": [
      {
       "name": "stop-token",
       "type": "",
       "docs": ""
      },
      {
       "name": "max-tokens",
       "type": "",
       "docs": ""
      },
      {
       "name": "stopped",
       "type": "",
       "docs": ""
      }
     ]
    },
    {
     "name": "run-chunk",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "tokens",
       "type": "list<u32>",
       "docs": "Tokens since the last `next`, in order, at least one unless finished."
      },
      {
       "name": "finished",
       "type": "option<finish-reason>",
       "docs": "Set with the last chunk."
      }
     ]
    },
    {
     "name": "frame",
     "kind": "record",
     "docs": "How messages with pieces of a text are written.",
     "members": [
      {
       "name": "opening",
       "type": "string",
       "docs": "A message of its own before the first piece; none when empty."
      },
      {
       "name": "before",
       "type": "string",
       "docs": "What stands in front of a piece, which is written as a JSON string."
      },
      {
       "name": "after",
       "type": "string",
       "docs": "What stands behind it."
      }
     ]
    },
    {
     "name": "pipe-request",
     "kind": "record",
     "docs": "What the platform needs to make text of a run's tokens as they come.",
     "members": [
      {
       "name": "before",
       "type": "list<u32>",
       "docs": "Tokens of the text before the run, those that complete no character included: the text goes on from them."
      },
      {
       "name": "held",
       "type": "string",
       "docs": "End of that text that was not sent, since it may be the beginning of a stop string."
      },
      {
       "name": "stops",
       "type": "list<string>",
       "docs": "Texts that end the run and are not sent: at most 64, of 1,024 bytes together; else `limit-exceeded`."
      },
      {
       "name": "frame",
       "type": "option<frame>",
       "docs": "Each piece is a message as it is by default. At most 8,192 bytes together; else `limit-exceeded`."
      }
     ]
    },
    {
     "name": "piped",
     "kind": "record",
     "docs": "What was piped.",
     "members": [
      {
       "name": "tokens",
       "type": "list<u32>",
       "docs": "Tokens of the run since the last `next` or `pipe`, in order, up to the one that completed a stop string."
      },
      {
       "name": "text",
       "type": "string",
       "docs": "The text that was sent."
      },
      {
       "name": "held",
       "type": "string",
       "docs": "End of the text that was not sent, since it may be the beginning of a stop string."
      },
      {
       "name": "stop",
       "type": "option<string>",
       "docs": "The stop string that was found; what is decoded behind it is forgotten, and costs no tokens."
      },
      {
       "name": "finished",
       "type": "option<finish-reason>",
       "docs": "Unset after a stop string, and when something cut the run short: the next call says what."
      }
     ]
    },
    {
     "name": "run",
     "kind": "resource",
     "docs": "Tokens decoded ahead of the inferlet, on the device.",
     "members": []
    }
   ],
   "calls": [
    {
     "name": "step",
     "signature": "step: func(queue: borrow<queue>, request: step-request) -> future<result<step-result, error>>",
     "docs": "",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_fused_step"
    },
    {
     "name": "run.constructor",
     "signature": "constructor(queue: borrow<queue>, request: run-request)",
     "docs": "Starts decoding; failures are reported by `next`.",
     "cost": "Issued without waiting.",
     "errors": [],
     "c": "pie_fused_run_new"
    },
    {
     "name": "run.next",
     "signature": "next: func() -> future<result<run-chunk, error>>",
     "docs": "",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_fused_run_next"
    },
    {
     "name": "run.pipe",
     "signature": "pipe: func(request: pipe-request) -> future<result<piped, error>>",
     "docs": "Instead of `next`: decodes until the run has finished, and sends its text to the client as `message` events as it comes. The inferlet\nis not woken for any of it. One `next` or `pipe` at a time, and 256 pipes of an inferlet.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_fused_run_pipe"
    },
    {
     "name": "run.stop",
     "signature": "stop: func()",
     "docs": "Asks the device to stop; what is already decoded is still handed over. Dropping the resource does the same.",
     "cost": "Issued without waiting; errors show at what depends on it.",
     "errors": [],
     "c": "pie_fused_run_stop"
    }
   ]
  },
  {
   "name": "tokenize",
   "id": "pie:inferlet/tokenize@0.1.0",
   "docs": "Text to tokens and back. It needs no device: a call takes about a microsecond a token, and long ones wait their tenant's turn. `limit-exceeded` past\n32,768 characters in one call (cut at the end of a line), 131,072 tokens, or 8,192 messages of a chat.",
   "needs": "Trait `tokenize` of the model.",
   "types": [
    {
     "name": "special-token-ids",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "bos",
       "type": "option<u32>",
       "docs": ""
      },
      {
       "name": "eos",
       "type": "list<u32>",
       "docs": ""
      },
      {
       "name": "pad",
       "type": "option<u32>",
       "docs": ""
      },
      {
       "name": "unknown",
       "type": "option<u32>",
       "docs": ""
      }
     ]
    },
    {
     "name": "chat-message",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "role",
       "type": "string",
       "docs": "`system`, `user`, `assistant` or `tool`."
      },
      {
       "name": "content",
       "type": "string",
       "docs": ""
      }
     ]
    },
    {
     "name": "detokenizer",
     "kind": "resource",
     "docs": "Detokenizes a stream: never hands out half a character.",
     "members": []
    }
   ],
   "calls": [
    {
     "name": "tokenize",
     "signature": "tokenize: func(model: string, text: string, special: bool) -> result<list<u32>, error>",
     "docs": "Token ids of `text`, without special tokens around it; special tokens written in the text are recognised when `special` is true.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_tokenize"
    },
    {
     "name": "detokenize",
     "signature": "detokenize: func(model: string, tokens: list<u32>, special: bool) -> result<string, error>",
     "docs": "Text of `tokens`; special tokens are left out unless `special`.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_tokenize_detokenize"
    },
    {
     "name": "special-tokens",
     "signature": "special-tokens: func(model: string) -> result<special-token-ids, error>",
     "docs": "",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_tokenize_special_tokens"
    },
    {
     "name": "vocabulary",
     "signature": "vocabulary: func(model: string) -> result<list<list<u8>>, error>",
     "docs": "Bytes of every token, by id.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_tokenize_vocabulary"
    },
    {
     "name": "chat-template",
     "signature": "chat-template: func(model: string, messages: list<chat-message>, add-generation-prompt: bool) -> result<string, error>",
     "docs": "The model's chat template applied to `messages`, as text to be tokenized with `special`. `unsupported` when the model has none.",
     "cost": "Answered at once.",
     "errors": [
      "unsupported"
     ],
     "c": "pie_tokenize_chat_template"
    },
    {
     "name": "render-chat",
     "signature": "render-chat: func(model: string, variables: string) -> result<string, error>",
     "docs": "The model's chat template applied to variables of any kind, a JSON object: `messages` (with whatever members the template knows, such\nas `tool_calls`), `tools`, `documents`, `add_generation_prompt`, … `bos_token`, `eos_token` and the like are the model's unless given.\n`invalid-argument` when the text is no JSON object or the template refuses it; `unsupported` when the model has none.",
     "cost": "Answered at once.",
     "errors": [
      "invalid-argument",
      "unsupported"
     ],
     "c": "pie_tokenize_render_chat"
    },
    {
     "name": "detokenizer.constructor",
     "signature": "constructor(model: string)",
     "docs": "",
     "cost": "Issued without waiting.",
     "errors": [],
     "c": "pie_tokenize_detokenizer_new"
    },
    {
     "name": "detokenizer.push",
     "signature": "push: func(tokens: list<u32>) -> result<string, error>",
     "docs": "Text that these tokens complete.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_tokenize_detokenizer_push"
    },
    {
     "name": "detokenizer.finish",
     "signature": "finish: func() -> string",
     "docs": "What is left, with U+FFFD for bytes that never became a character.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_tokenize_detokenizer_finish"
    }
   ]
  },
  {
   "name": "grammar",
   "id": "pie:inferlet/grammar@0.1.0",
   "docs": "Grammars that hold decoding to a format. Compiled and matched in the runtime; the mask travels with the fused call and is applied on the\ndevice before a token is picked. Calls of one matcher run in order.\nCompiling takes milliseconds, a mask about 0.2 ms where the text is at a place that no matcher was at before, else microseconds.",
   "needs": "Trait `grammar` of the model.",
   "types": [
    {
     "name": "source",
     "kind": "variant",
     "docs": "",
     "members": [
      {
       "name": "json-schema",
       "type": "string",
       "docs": "A JSON schema, as text."
      },
      {
       "name": "regex",
       "type": "string",
       "docs": "A regular expression that the whole text must match."
      },
      {
       "name": "ebnf",
       "type": "string",
       "docs": "A grammar in EBNF (GBNF, as of llama.cpp) whose start is `root`."
      },
      {
       "name": "json",
       "type": "",
       "docs": "Any JSON."
      }
     ]
    },
    {
     "name": "match-status",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "may-end",
       "type": "bool",
       "docs": "An end-of-sequence token is allowed now."
      },
      {
       "name": "must-end",
       "type": "bool",
       "docs": "Nothing but the end is allowed, or the end was accepted."
      }
     ]
    },
    {
     "name": "compiled",
     "kind": "resource",
     "docs": "A grammar compiled for one model's vocabulary.",
     "members": []
    },
    {
     "name": "matcher",
     "kind": "resource",
     "docs": "Where a text stands in a grammar.",
     "members": []
    }
   ],
   "calls": [
    {
     "name": "step",
     "signature": "step: func(queue: borrow<queue>, matcher: borrow<matcher>, request: step-request) -> future<result<step-result, error>>",
     "docs": "`fused.step` with the matcher's mask applied to the only row of output, which must be a `sample` or `distributions`.\nThe sampled token is not accepted by itself: call `accept`. The call enters its queue when the mask is known: await it before calls\nthat must come after it.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_grammar_step"
    },
    {
     "name": "compiled.constructor",
     "signature": "constructor(model: string, source: source)",
     "docs": "Starts compiling; failures are reported by `ready` and by its matchers.",
     "cost": "Issued without waiting.",
     "errors": [],
     "c": "pie_grammar_compiled_new"
    },
    {
     "name": "compiled.ready",
     "signature": "ready: func() -> future<result<_, error>>",
     "docs": "`invalid-argument` for a grammar that does not compile, `limit-exceeded` for one that takes too long.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "invalid-argument",
      "limit-exceeded"
     ],
     "c": "pie_grammar_compiled_ready"
    },
    {
     "name": "matcher.constructor",
     "signature": "constructor(grammar: borrow<compiled>)",
     "docs": "",
     "cost": "Issued without waiting.",
     "errors": [],
     "c": "pie_grammar_matcher_new"
    },
    {
     "name": "matcher.accept",
     "signature": "accept: func(tokens: list<u32>) -> future<result<bool, error>>",
     "docs": "Takes the next tokens. False when one does not fit: then none of them was taken.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_grammar_matcher_accept"
    },
    {
     "name": "matcher.mask",
     "signature": "mask: func() -> future<result<list<u32>, error>>",
     "docs": "Tokens that may come next: bit `t % 32` of word `t / 32`. (JavaScript guests see a word whose highest bit is set as a negative number.)",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_grammar_matcher_mask"
    },
    {
     "name": "matcher.status",
     "signature": "status: func() -> future<result<match-status, error>>",
     "docs": "Whether the text may end here, and whether it must.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_grammar_matcher_status"
    },
    {
     "name": "matcher.fork",
     "signature": "fork: func() -> matcher",
     "docs": "A matcher of its own at the same place.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_grammar_matcher_fork"
    },
    {
     "name": "matcher.rollback",
     "signature": "rollback: func(tokens: u32) -> future<result<_, error>>",
     "docs": "Takes the last `tokens` accepted ones back.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_grammar_matcher_rollback"
    }
   ]
  },
  {
   "name": "introspect",
   "id": "pie:inferlet/introspect@0.1.0",
   "docs": "What the model looked at, for strategies that evict what nobody looks at. Such a forward computes its attention a second time, and runs in\nbatches of its own.",
   "needs": "Trait `introspect` of the model.",
   "types": [],
   "calls": [
    {
     "name": "forward-scores",
     "signature": "forward-scores: func(queue: borrow<queue>, in-pages: list<u32>, in-embeds: list<u32>, out-pages: list<u32>, out-embeds: list<u32>, mask: option<mask>) -> future<result<list<f32>, error>>",
     "docs": "`forward`, and the attention that each slot received from it: summed over the inputs, averaged over layers and heads. First `page-size`\nnumbers for each of `in-pages` (0 for empty and masked slots), then one for each input. It all sums to the number of inputs.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_introspect_forward_scores"
    }
   ]
  },
  {
   "name": "kv-files",
   "id": "pie:inferlet/kv-files@0.1.0",
   "docs": "The cache as files (Symphony, HotOS '25). A file is a sequence of tokens' keys and values, named or not, of one model. Whoever opens a\nname sees what was saved last; whoever holds its lock may save anew. Names are the tenant's; those under `system/` are written by operators\nand readable by every tenant. A file that is opened shares its pages: opening and saving cost a round trip, and nothing a token.",
   "needs": "Trait `kv-files` of the model.",
   "types": [
    {
     "name": "access",
     "kind": "enum",
     "docs": "",
     "members": [
      {
       "name": "read",
       "type": "",
       "docs": "A private copy-on-write view."
      },
      {
       "name": "write",
       "type": "",
       "docs": "With the file's lock, so that it can be saved back: `unavailable` while another inferlet holds it. An inferlet may open a name\nfor writing more than once; the lock is given back with the last of these files."
      }
     ]
    },
    {
     "name": "rights",
     "kind": "enum",
     "docs": "What others in the tenant may do with a file.",
     "members": [
      {
       "name": "private",
       "type": "",
       "docs": ""
      },
      {
       "name": "readable",
       "type": "",
       "docs": ""
      },
      {
       "name": "writable",
       "type": "",
       "docs": ""
      }
     ]
    },
    {
     "name": "file-info",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "name",
       "type": "string",
       "docs": ""
      },
      {
       "name": "tokens",
       "type": "u32",
       "docs": ""
      },
      {
       "name": "next-position",
       "type": "u32",
       "docs": ""
      },
      {
       "name": "persistent",
       "type": "bool",
       "docs": ""
      },
      {
       "name": "rights",
       "type": "rights",
       "docs": ""
      },
      {
       "name": "owner",
       "type": "string",
       "docs": "The function that made it."
      },
      {
       "name": "locked",
       "type": "bool",
       "docs": ""
      }
     ]
    },
    {
     "name": "file",
     "kind": "resource",
     "docs": "",
     "members": []
    }
   ],
   "calls": [
    {
     "name": "remove",
     "signature": "remove: func(queue: borrow<queue>, name: string) -> future<result<_, error>>",
     "docs": "Removes a name. Who has it open keeps what it sees.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_kv_files_remove"
    },
    {
     "name": "files",
     "signature": "files: func(queue: borrow<queue>, prefix: string) -> future<result<list<file-info>, error>>",
     "docs": "Names that begin with `prefix`, in order, of this model.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_kv_files_files"
    },
    {
     "name": "file.constructor",
     "signature": "constructor(queue: borrow<queue>, name: option<string>, access: access)",
     "docs": "Opens `name`, or makes a file without a name when it is none. `ready` reports failures. Its calls run on `queue`; those made before\nit is ready wait for that.",
     "cost": "Issued without waiting.",
     "errors": [],
     "c": "pie_kv_files_file_new"
    },
    {
     "name": "file.ready",
     "signature": "ready: func() -> future<result<_, error>>",
     "docs": "Completes when the file can be used. `not-found`, `unsupported` (no right), `unavailable` (locked).",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "not-found",
      "unsupported",
      "unavailable"
     ],
     "c": "pie_kv_files_file_ready"
    },
    {
     "name": "file.tokens",
     "signature": "tokens: func() -> u32",
     "docs": "Tokens held; known once ready.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_kv_files_file_tokens"
    },
    {
     "name": "file.next-position",
     "signature": "next-position: func() -> u32",
     "docs": "The first position that is free: no token is at it or behind it. Known once ready.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_kv_files_file_next_position"
    },
    {
     "name": "file.pages",
     "signature": "pages: func() -> list<u32>",
     "docs": "Its pages, for `forward` and `fused` to read.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_kv_files_file_pages"
    },
    {
     "name": "file.reserve",
     "signature": "reserve: func(tokens: u32) -> result<list<u32>, error>",
     "docs": "Its pages with empty slots for `tokens` more behind the filled ones, for `forward` and `fused` to fill. Tell `filled` what they did:\nnothing else counts it. `limit-exceeded` when the invocation's page limit would be passed.",
     "cost": "Answered at once.",
     "errors": [
      "limit-exceeded"
     ],
     "c": "pie_kv_files_file_reserve"
    },
    {
     "name": "file.filled",
     "signature": "filled: func(tokens: u32, next-position: u32)",
     "docs": "Takes `tokens` that `forward` or `fused` wrote into the reserved slots as the file's; `next-position` is the first position behind them.",
     "cost": "Issued without waiting; errors show at what depends on it.",
     "errors": [],
     "c": "pie_kv_files_file_filled"
    },
    {
     "name": "file.pred",
     "signature": "pred: func(tokens: list<u32>, positions: list<u32>, top-k: u32) -> future<result<list<distribution>, error>>",
     "docs": "Computes tokens, appends them and returns one distribution for each: of the token that follows it, cut to the `top-k` most\nprobable (1 to the device's cap, 256 by default).",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_kv_files_file_pred"
    },
    {
     "name": "file.fork",
     "signature": "fork: func() -> file",
     "docs": "A file without a name with the same content, copy-on-write.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_kv_files_file_fork"
    },
    {
     "name": "file.extract",
     "signature": "extract: func(indices: list<u32>, renumber: option<u32>) -> file",
     "docs": "A file without a name that holds the tokens at `indices`, in that order. With `renumber` their positions become\n`first-position`, `first-position + 1`, … and their keys are rotated to them; else they keep their own. `ready` reports failures:\n`invalid-argument` for a token that is not there, `limit-exceeded` for more than the invocation's pages hold, and, like\n`synchronize`, the first error of the queue.",
     "cost": "Answered at once.",
     "errors": [
      "invalid-argument",
      "limit-exceeded"
     ],
     "c": "pie_kv_files_file_extract"
    },
    {
     "name": "file.merge",
     "signature": "merge: func(other: borrow<file>, keep-positions: bool) -> future<result<_, error>>",
     "docs": "Appends another file's tokens (of the same model), renumbered to follow this one's unless `keep-positions`. Like `synchronize`, it\nreports the first error of the queue.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_kv_files_file_merge"
    },
    {
     "name": "file.save",
     "signature": "save: func(name: string, persistent: bool, rights: rights) -> future<result<_, error>>",
     "docs": "Saves under a name (its own, with the lock, or a new one). `invalid-argument` when another file has the name.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "invalid-argument"
     ],
     "c": "pie_kv_files_file_save"
    },
    {
     "name": "file.unlock",
     "signature": "unlock: func()",
     "docs": "Gives the lock back; dropping the file does the same.",
     "cost": "Issued without waiting; errors show at what depends on it.",
     "errors": [],
     "c": "pie_kv_files_file_unlock"
    }
   ]
  },
  {
   "name": "input-image",
   "id": "pie:inferlet/input-image@0.1.0",
   "docs": "Images to embeds, for models with a vision encoder.",
   "needs": "Trait `input-image` of the model.",
   "types": [
    {
     "name": "dimensions",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "width",
       "type": "u32",
       "docs": "Pixels."
      },
      {
       "name": "height",
       "type": "u32",
       "docs": ""
      }
     ]
    }
   ],
   "calls": [
    {
     "name": "image-dimensions",
     "signature": "image-dimensions: func(image: list<u8>) -> result<dimensions, error>",
     "docs": "Size of an image (PNG or JPEG), read from its first bytes. `invalid-argument` for anything else.",
     "cost": "Answered at once.",
     "errors": [
      "invalid-argument"
     ],
     "c": "pie_input_image_image_dimensions"
    },
    {
     "name": "image-embeds",
     "signature": "image-embeds: func(queue: borrow<queue>, size: dimensions) -> result<u32, error>",
     "docs": "How many embeds an image of that size takes on the queue's model. `unsupported` without this trait, `invalid-argument` for more pixels than it takes.",
     "cost": "Answered at once.",
     "errors": [
      "unsupported",
      "invalid-argument"
     ],
     "c": "pie_input_image_image_embeds"
    },
    {
     "name": "embed-image",
     "signature": "embed-image: func(queue: borrow<queue>, image: list<u8>, positions: list<u32>, embeds: list<u32>) -> future<result<_, error>>",
     "docs": "Encodes an image (PNG or JPEG, at most 8 MiB and 16 million pixels) into as many `embeds` as `image-embeds` says, at `positions`. It\ncosts a pass of the vision encoder: about as much as a prefill of as many tokens.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_input_image_embed_image"
    }
   ]
  },
  {
   "name": "adapter",
   "id": "pie:inferlet/adapter@0.1.0",
   "docs": "Low-rank adapters (Hu et al., LoRA, 2021) that the platform's operator put beside a model. Keys and values that an adapter computed are told\napart from the model's own wherever prefixes are shared.",
   "needs": "Trait `adapter` of the model.",
   "types": [
    {
     "name": "adapter-info",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "name",
       "type": "string",
       "docs": ""
      },
      {
       "name": "rank",
       "type": "u32",
       "docs": ""
      },
      {
       "name": "loaded",
       "type": "bool",
       "docs": "Whether it is in the device's memory."
      }
     ]
    }
   ],
   "calls": [
    {
     "name": "list-adapters",
     "signature": "list-adapters: func(queue: borrow<queue>) -> future<result<list<adapter-info>, error>>",
     "docs": "The adapters of the queue's model, by name.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_adapter_list_adapters"
    },
    {
     "name": "load-adapter",
     "signature": "load-adapter: func(queue: borrow<queue>, name: string) -> future<result<_, error>>",
     "docs": "Brings an adapter into the device's memory, so that the first call does not wait for it. `not-found` without such a name.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "not-found"
     ],
     "c": "pie_adapter_load_adapter"
    },
    {
     "name": "forward-with-adapter",
     "signature": "forward-with-adapter: func(queue: borrow<queue>, adapter: string, in-pages: list<u32>, in-embeds: list<u32>, out-pages: list<u32>, out-embeds: list<u32>, mask: option<mask>)",
     "docs": "`forward` with the adapter's matrices added to the model's. Calls with different adapters do not share a batch.",
     "cost": "Issued without waiting; errors show at what depends on it.",
     "errors": [],
     "c": "pie_adapter_forward_with_adapter"
    },
    {
     "name": "step",
     "signature": "step: func(queue: borrow<queue>, adapter: string, request: step-request) -> future<result<step-result, error>>",
     "docs": "`fused.step` with the adapter.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_adapter_step"
    }
   ]
  },
  {
   "name": "store",
   "id": "pie:inferlet/store@0.1.0",
   "docs": "Durable values by key, per tenant, for functions that were granted `store` (manifest: `grants.store`); without the grant every call is\n`unsupported`, and with `read` the calls that write are. Keys have 1 to 512 bytes of UTF-8, values at most 1 MiB; `limit-exceeded` when the\ntenant's store is full. A call costs one round trip to the platform's store, about 0.2 ms.",
   "needs": "Grant `store` of the manifest.",
   "types": [
    {
     "name": "entry",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "value",
       "type": "list<u8>",
       "docs": ""
      },
      {
       "name": "version",
       "type": "u64",
       "docs": "Grows with every write of the key; what `compare-and-set` compares."
      }
     ]
    }
   ],
   "calls": [
    {
     "name": "get",
     "signature": "get: func(key: string) -> future<result<option<entry>, error>>",
     "docs": "The value of a key, if it has one.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_store_get"
    },
    {
     "name": "set",
     "signature": "set: func(key: string, value: list<u8>, time-to-live: option<u32>) -> future<result<u64, error>>",
     "docs": "Writes a value, whatever was there; completes with its version. With `time-to-live` it is forgotten after as many seconds.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_store_set"
    },
    {
     "name": "compare-and-set",
     "signature": "compare-and-set: func(key: string, expected: option<u64>, value: list<u8>) -> future<result<option<u64>, error>>",
     "docs": "Writes a value if the key's version is `expected` (none: if there is no value). Completes with the new version, or none when somebody\nelse was there before: read again. A time to live stays.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_store_compare_and_set"
    },
    {
     "name": "delete-key",
     "signature": "delete-key: func(key: string) -> future<result<bool, error>>",
     "docs": "Whether there was a value to delete.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_store_delete_key"
    },
    {
     "name": "exists",
     "signature": "exists: func(key: string) -> future<result<bool, error>>",
     "docs": "",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_store_exists"
    },
    {
     "name": "list-keys",
     "signature": "list-keys: func(prefix: string, after: option<string>, limit: u32) -> future<result<list<string>, error>>",
     "docs": "Keys that begin with `prefix` and follow `after`, in order of their bytes, at most `limit` (1 to 1,000).",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_store_list_keys"
    }
   ]
  },
  {
   "name": "messaging",
   "id": "pie:inferlet/messaging@0.1.0",
   "docs": "Messages among the inferlets of one tenant, of any function that was granted `messaging` (manifest: `grants.messaging`); without the grant\nevery call is `unsupported`. Topics and lines are names of 1 to 128 characters of letters, digits, `.`, `_`, `-`, `/`. A message has\nat most 1 MiB. A call costs one round trip to the platform's store, about 0.2 ms.",
   "needs": "Grant `messaging` of the manifest.",
   "types": [
    {
     "name": "envelope",
     "kind": "record",
     "docs": "A message and who sent it.",
     "members": [
      {
       "name": "sender",
       "type": "string",
       "docs": "Invocation id of the sender."
      },
      {
       "name": "message",
       "type": "message",
       "docs": ""
      }
     ]
    },
    {
     "name": "subscription",
     "kind": "resource",
     "docs": "What is broadcast to a topic from `ready` on, in order. Dropping it unsubscribes.",
     "members": []
    }
   ],
   "calls": [
    {
     "name": "broadcast",
     "signature": "broadcast: func(topic: string, message: message) -> future<result<u32, error>>",
     "docs": "Sends to all that subscribe to `topic` now; nobody keeps it for those who come later. Completes with the number of inferlets' subscriptions\nthat it was handed to.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_messaging_broadcast"
    },
    {
     "name": "push",
     "signature": "push: func(name: string, message: message) -> future<result<_, error>>",
     "docs": "Puts a message at the end of a line, where it waits to be pulled: by one inferlet, once. `limit-exceeded` when the line holds 10,000\nmessages or 16 MiB, or all lines of the tenant 64 MiB. A line that nobody touches is forgotten after a day.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "limit-exceeded"
     ],
     "c": "pie_messaging_push"
    },
    {
     "name": "pull",
     "signature": "pull: func(name: string) -> future<result<envelope, error>>",
     "docs": "Takes the first message of a line; waits for one when there is none.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_messaging_pull"
    },
    {
     "name": "subscription.constructor",
     "signature": "constructor(topic: string)",
     "docs": "`limit-exceeded` past 64 subscriptions of one inferlet, reported by `ready`.",
     "cost": "Issued without waiting.",
     "errors": [
      "limit-exceeded"
     ],
     "c": "pie_messaging_subscription_new"
    },
    {
     "name": "subscription.ready",
     "signature": "ready: func() -> future<result<_, error>>",
     "docs": "Completes once nothing that is broadcast from now on is missed.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_messaging_subscription_ready"
    },
    {
     "name": "subscription.next",
     "signature": "next: func() -> future<result<envelope, error>>",
     "docs": "The next message. `limit-exceeded`, once, when messages were dropped because 1,024 of them, or 4 MiB, waited to be read; `closed` after `unsubscribe`.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "limit-exceeded",
      "closed"
     ],
     "c": "pie_messaging_subscription_next"
    },
    {
     "name": "subscription.unsubscribe",
     "signature": "unsubscribe: func()",
     "docs": "",
     "cost": "Issued without waiting; errors show at what depends on it.",
     "errors": [],
     "c": "pie_messaging_subscription_unsubscribe"
    }
   ]
  },
  {
   "name": "http",
   "id": "pie:inferlet/http@0.1.0",
   "docs": "Requests to hosts that the function was granted (manifest: `grants.hosts`); any other host is `unsupported`, whatever redirect leads to\nit. Addresses of private networks are refused unless the platform's operator allows them.",
   "needs": "Grant `hosts` of the manifest.",
   "types": [
    {
     "name": "header",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "name",
       "type": "string",
       "docs": ""
      },
      {
       "name": "value",
       "type": "string",
       "docs": ""
      }
     ]
    },
    {
     "name": "request",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "method",
       "type": "string",
       "docs": "`GET`, `POST`, … `invalid-argument` for what is no token of RFC 9110."
      },
      {
       "name": "url",
       "type": "string",
       "docs": "`http:` or `https:`, without user and password."
      },
      {
       "name": "headers",
       "type": "list<header>",
       "docs": ""
      },
      {
       "name": "body",
       "type": "option<list<u8>>",
       "docs": "At most 4 MiB."
      },
      {
       "name": "timeout-ms",
       "type": "option<u32>",
       "docs": "Until the head of the response, redirects included; 30,000 by default, at most the invocation's time left."
      },
      {
       "name": "redirects",
       "type": "u32",
       "docs": "How many redirects are followed (0 to 10), each to a granted host; past it the redirect itself is the response."
      }
     ]
    },
    {
     "name": "response-head",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "status",
       "type": "u16",
       "docs": ""
      },
      {
       "name": "headers",
       "type": "list<header>",
       "docs": "Names in lower case; one entry a line, so a name may come more than once."
      },
      {
       "name": "url",
       "type": "string",
       "docs": "Where the response came from, after redirects."
      }
     ]
    },
    {
     "name": "exchange",
     "kind": "resource",
     "docs": "A request under way and its response. Dropping it closes the connection.",
     "members": []
    }
   ],
   "calls": [
    {
     "name": "exchange.constructor",
     "signature": "constructor(request: request)",
     "docs": "Sends the request. At most 64 of one inferlet at once: one more is `limit-exceeded`, reported by `head`.",
     "cost": "Issued without waiting.",
     "errors": [
      "limit-exceeded"
     ],
     "c": "pie_http_exchange_new"
    },
    {
     "name": "exchange.head",
     "signature": "head: func() -> future<result<response-head, error>>",
     "docs": "The response without its body. `unsupported` for a host that was not granted; `unavailable` when the host cannot be reached, or breaks off;\n`deadline-exceeded` when it takes too long.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "unsupported",
      "unavailable",
      "deadline-exceeded"
     ],
     "c": "pie_http_exchange_head"
    },
    {
     "name": "exchange.read",
     "signature": "read: func() -> future<result<option<list<u8>>, error>>",
     "docs": "The next piece of the body, at most 64 KiB, without gzip or deflate; none at its end. `limit-exceeded` past 32 MiB in all.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "limit-exceeded"
     ],
     "c": "pie_http_exchange_read"
    }
   ]
  },
  {
   "name": "children",
   "id": "pie:inferlet/children@0.1.0",
   "docs": "Other inferlets, launched by this one (manifest: `grants.launch`, a list of functions or `\"*\"`; without it `unsupported`). A child is an\ninvocation of its own, with an id, a log and usage; it inherits its root's place in line and runs inside its root's reservation, so it\nstarts at once. It ends with its parent. A handle\ncounts until it is dropped, 1,024 of them, also after the child's end.",
   "needs": "Grant `launch` of the manifest.",
   "types": [
    {
     "name": "failure",
     "kind": "record",
     "docs": "Why a child did not succeed: the code and text of its `error` event.",
     "members": [
      {
       "name": "code",
       "type": "string",
       "docs": ""
      },
      {
       "name": "message",
       "type": "string",
       "docs": ""
      }
     ]
    },
    {
     "name": "ending",
     "kind": "variant",
     "docs": "How a child ended.",
     "members": [
      {
       "name": "success",
       "type": "string",
       "docs": "What it returned, JSON text."
      },
      {
       "name": "failure",
       "type": "failure",
       "docs": ""
      }
     ]
    },
    {
     "name": "child",
     "kind": "resource",
     "docs": "",
     "members": []
    }
   ],
   "calls": [
    {
     "name": "child.constructor",
     "signature": "constructor(name: string, input: string)",
     "docs": "Launches a function of this tenant (`name`: what its alias `live` serves; `name@alias`, `name@version`), with JSON text as its input, which\nthe function's schema must accept: at most 262,144 characters. `started` reports failures.",
     "cost": "Issued without waiting.",
     "errors": [],
     "c": "pie_children_child_new"
    },
    {
     "name": "child.started",
     "signature": "started: func() -> future<result<string, error>>",
     "docs": "The child's invocation id. `not-found` for no such function, `invalid-argument` for an input that its schema refuses,\n`limit-exceeded` past 64 children at once of one root, 4,096 in all, or a depth of 8.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "not-found",
      "invalid-argument",
      "limit-exceeded"
     ],
     "c": "pie_children_child_started"
    },
    {
     "name": "child.send",
     "signature": "send: func(message: message) -> future<result<_, error>>",
     "docs": "A message into the child's session. `closed` once the child has ended.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "closed"
     ],
     "c": "pie_children_child_send"
    },
    {
     "name": "child.close",
     "signature": "close: func()",
     "docs": "Tells the child that no more messages follow.",
     "cost": "Issued without waiting; errors show at what depends on it.",
     "errors": [],
     "c": "pie_children_child_close"
    },
    {
     "name": "child.receive",
     "signature": "receive: func() -> future<result<message, error>>",
     "docs": "The next message that the child sends into its session. `closed` once it has ended and all were read.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "closed"
     ],
     "c": "pie_children_child_receive"
    },
    {
     "name": "child.wait",
     "signature": "wait: func() -> future<result<ending, error>>",
     "docs": "Completes when the child has ended. It may be asked more than once.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_children_child_wait"
    },
    {
     "name": "child.cancel",
     "signature": "cancel: func()",
     "docs": "Asks the child to stop; `wait` then completes with a failure `cancelled`, or with what it still returned. Dropping the resource cancels it too.",
     "cost": "Issued without waiting; errors show at what depends on it.",
     "errors": [
      "cancelled"
     ],
     "c": "pie_children_child_cancel"
    }
   ]
  },
  {
   "name": "file-exchange",
   "id": "pie:inferlet/file-exchange@0.1.0",
   "docs": "Files between the client and this invocation, for what is too large for a message: at most 16 MiB each, 64 MiB and 256 files an invocation,\n128 MiB with its children and 1 GiB a tenant.\nNames have 1 to 128 characters of letters, digits, `.`, `_`, `-`. They are kept as long as the invocation's events. Over HTTP they are\n`/v1/invocations/{id}/files/{name}`.",
   "needs": "Always there.",
   "types": [
    {
     "name": "file-info",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "name",
       "type": "string",
       "docs": ""
      },
      {
       "name": "media-type",
       "type": "string",
       "docs": ""
      },
      {
       "name": "size",
       "type": "u64",
       "docs": "Bytes."
      }
     ]
    },
    {
     "name": "file",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "media-type",
       "type": "string",
       "docs": ""
      },
      {
       "name": "content",
       "type": "list<u8>",
       "docs": ""
      }
     ]
    }
   ],
   "calls": [
    {
     "name": "send-file",
     "signature": "send-file: func(name: string, media-type: string, content: list<u8>) -> future<result<_, error>>",
     "docs": "Puts a file where the client can get it, and tells it so by a `message` event `{\"file\": {\"name\", \"mediaType\", \"bytes\"}}`. A name\nthat is taken gets the new content.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_file_exchange_send_file"
    },
    {
     "name": "receive-file",
     "signature": "receive-file: func(name: string) -> future<result<file, error>>",
     "docs": "A file of the invocation, the client's or its own; waits until the client has put it there. `closed` when the client has closed the session.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "closed"
     ],
     "c": "pie_file_exchange_receive_file"
    },
    {
     "name": "list-files",
     "signature": "list-files: func() -> future<result<list<file-info>, error>>",
     "docs": "What is there now, by name.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "c": "pie_file_exchange_list_files"
    }
   ]
  },
  {
   "name": "environment",
   "id": "pie:inferlet/environment@0.1.0",
   "docs": "What the function was deployed with besides its code: the tenant's secrets that its manifest names (`secrets`), each with the value that it\nhad at the deploy, and plain variables (`environment`). Both are texts by name; a name is upper-case letters, digits and `_`. They stay the\nsame while the version does, and cost no wait. In log lines and error messages `[NAME]` stands in place of each\nvalue of four or more characters.",
   "needs": "Trait `environment` of the model.",
   "types": [],
   "calls": [
    {
     "name": "get-variable",
     "signature": "get-variable: func(name: string) -> option<string>",
     "docs": "The value of a variable or secret; none when the manifest does not name it.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_environment_get_variable"
    },
    {
     "name": "list-variables",
     "signature": "list-variables: func() -> list<string>",
     "docs": "Names of all of them, in order.",
     "cost": "Answered at once.",
     "errors": [],
     "c": "pie_environment_list_variables"
    }
   ]
  }
 ],
 "exports": [
  {
   "name": "run",
   "signature": "run: async func(input: string) -> result<string, string>",
   "docs": "Runs one invocation. `input` is the request body (JSON, checked against the manifest's schema); the result is JSON as well.\nAn error ends the invocation as failed, with this text as its cause.",
   "cost": "Runs as long as the invocation.",
   "errors": [],
   "c": "pie_run"
  }
 ]
};
