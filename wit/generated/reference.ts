// Generated from wit/*.wit by `npm run generate`. Do not edit: a test compares this file with its source.
import type { ContractReference } from '../generate/reference.ts';

export const reference: ContractReference = {
 "package": "pie:inferlet",
 "version": "0.1.0",
 "docs": "A user's program. It drives inference through its imports and streams to its client.",
 "introduction": "A call with a `result` reports its errors there. Errors that its documentation names are listed with the call; any call may also answer `invalid-argument`, `not-owned`, `dependency-failed` (an earlier call of its queue failed), `cancelled`, `deadline-exceeded`, `terminated`, `unavailable` and `internal`. A call whose trait the model lacks, or whose grant the function lacks, fails with `unsupported`; `runtime.model-traits` tells the traits in advance. Within one version of the contract, calls are only added.",
 "interfaces": [
  {
   "name": "types",
   "id": "pie:inferlet/types@0.1.0",
   "docs": "Types that every interface shares. An inferlet may have 1,024 calls to stores, messages, files, children and the network in progress. The\narguments of these calls may hold 32 MiB. Their unread results, and unread vectors and scores, may hold another 32 MiB. A further call fails\nwith `limit-exceeded` until the inferlet reads or drops some results.",
   "needs": "Always there.",
   "types": [
    {
     "name": "error",
     "kind": "variant",
     "docs": "Reason of a failed call. The text says what happened and what to do. Programs match on the case.",
     "members": [
      {
       "name": "invalid-argument",
       "type": "string",
       "docs": "An argument has a wrong shape or value: lists of unequal lengths, a token id outside the vocabulary, a slot past the end of a page."
      },
      {
       "name": "not-owned",
       "type": "string",
       "docs": "The inferlet does not hold this address: the inferlet never allocated the address or has freed it, or the address belongs to another model."
      },
      {
       "name": "unsupported",
       "type": "string",
       "docs": "The model, the host or the function's grants do not offer this call. Check `runtime.model-traits` first, or add the grant to the manifest."
      },
      {
       "name": "not-found",
       "type": "string",
       "docs": "No model, name or invocation matches."
      },
      {
       "name": "limit-exceeded",
       "type": "string",
       "docs": "The call would exceed a limit of the deployment or the tenant (pages, tokens, output, memory)."
      },
      {
       "name": "context-overflow",
       "type": "string",
       "docs": "The context would exceed the model's trained length, or the out-pages have no empty slot left."
      },
      {
       "name": "dependency-failed",
       "type": "string",
       "docs": "An earlier call on which this call depends has failed. The text names the cause."
      },
      {
       "name": "cancelled",
       "type": "string",
       "docs": "The client or the parent cancelled the invocation."
      },
      {
       "name": "deadline-exceeded",
       "type": "string",
       "docs": "The deadline of the invocation has passed."
      },
      {
       "name": "terminated",
       "type": "string",
       "docs": "The platform reclaimed the inferlet's memory (first-come-first-served termination)."
      },
      {
       "name": "unavailable",
       "type": "string",
       "docs": "The resource is not available now but may be later: another inferlet holds it (a lock, memory, a busy worker), or the device or its\nprocess is gone together with everything that it held."
      },
      {
       "name": "closed",
       "type": "string",
       "docs": "The other end of the session has closed it."
      },
      {
       "name": "internal",
       "type": "string",
       "docs": "The platform itself has a fault."
      }
     ]
    }
   ],
   "calls": []
  },
  {
   "name": "runtime",
   "id": "pie:inferlet/runtime@0.1.0",
   "docs": "Information about the inferlet and the platform. Every call except `sleep` returns at once, most after about a microsecond.",
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
     "docs": "A model that the function was granted, and so may use.",
     "members": [
      {
       "name": "name",
       "type": "string",
       "docs": ""
      },
      {
       "name": "context-length",
       "type": "u32",
       "docs": "Trained context length, in tokens."
      },
      {
       "name": "vocabulary-size",
       "type": "u32",
       "docs": ""
      },
      {
       "name": "page-size",
       "type": "u32",
       "docs": "Number of tokens that fit in a KV page."
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
     "docs": "Facts about a model, from its configuration.",
     "members": [
      {
       "name": "architecture",
       "type": "string",
       "docs": "Name from the configuration, such as `LlamaForCausalLM`."
      },
      {
       "name": "parameters",
       "type": "u64",
       "docs": "Number of weights, including embeddings."
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
       "docs": "Bits of a weight in the device's memory."
      }
     ]
    }
   ],
   "calls": [
    {
     "name": "version",
     "signature": "version: func() -> string",
     "docs": "The version of this contract that the host implements, such as `0.1.0`.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_runtime_version"
    },
    {
     "name": "instance-id",
     "signature": "instance-id: func() -> string",
     "docs": "The id of this invocation, as the client sees it.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_runtime_instance_id"
    },
    {
     "name": "tenant",
     "signature": "tenant: func() -> string",
     "docs": "",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_runtime_tenant"
    },
    {
     "name": "get-arguments",
     "signature": "get-arguments: func() -> string",
     "docs": "The input of this invocation, which `run` has also received as its argument.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_runtime_get_arguments"
    },
    {
     "name": "function-name",
     "signature": "function-name: func() -> string",
     "docs": "",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_runtime_function_name"
    },
    {
     "name": "function-version",
     "signature": "function-version: func() -> string",
     "docs": "",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_runtime_function_version"
    },
    {
     "name": "models",
     "signature": "models: func() -> list<model-info>",
     "docs": "The models that the function may use. The first one is the default model.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_runtime_models"
    },
    {
     "name": "model-traits",
     "signature": "model-traits: func(model: string) -> result<list<string>, error>",
     "docs": "The interfaces that a model offers.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_runtime_model_traits"
    },
    {
     "name": "metadata",
     "signature": "metadata: func(model: string) -> result<model-metadata, error>",
     "docs": "Facts about a model. Fails with `not-found` for a model that the function was not granted.",
     "cost": "Answered at once.",
     "errors": [
      "not-found"
     ],
     "errorsTitle": "Errors",
     "c": "pie_runtime_metadata"
    },
    {
     "name": "efficient-tokens",
     "signature": "efficient-tokens: func(model: string) -> result<option<u32>, error>",
     "docs": "For a model, the maximum efficient size of a device step, in tokens: up to this size, more tokens in a step take little more time. For an\nencoder, the maximum number of tokens in the next batch. The GPU host measures these numbers while it computes, so they change. Returns none\nbefore the first measurement. Fails with `not-found` for a model or encoder that the function was not granted. Takes a round trip to the\nruntime.",
     "cost": "Answered at once.",
     "errors": [
      "not-found"
     ],
     "errorsTitle": "Errors",
     "c": "pie_runtime_efficient_tokens"
    },
    {
     "name": "debug-query",
     "signature": "debug-query: func(query: string) -> result<string, error>",
     "docs": "The state of this inferlet as JSON text, for debugging. `query` chooses the part: `limits`, `usage` (CPU, tokens, calls), `pages` (held pages by\nmodel), `room` (by model, the tokens that this inferlet can hold at once: its context, or fewer with the reason), `grants`, `models` or `all`. Fails with `invalid-argument` for another query.",
     "cost": "Answered at once.",
     "errors": [
      "invalid-argument"
     ],
     "errorsTitle": "Errors",
     "c": "pie_runtime_debug_query"
    },
    {
     "name": "log",
     "signature": "log: func(level: log-level, message: string)",
     "docs": "Writes a line to the function's log and to the invocation's event stream.",
     "cost": "Issued without waiting.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_runtime_log"
    },
    {
     "name": "record-span",
     "signature": "record-span: func(name: string, kind: string, began: u64, ended: u64, failed: bool)",
     "docs": "Records a span: a part of the inferlet's work, such as a node of a workflow. The span becomes a bar on the dashboard's page of the invocation,\nand an entry of the invocation's event `metric`. `began` and `ended` are times as `now` returns them. A time before this run is moved to the\nbeginning of the run, a time after this call to the moment of the call, and an `ended` before `began` to `began`. The platform keeps 64 spans,\nfailed spans first and then the longest ones, and only counts the others. It shortens names to 80 characters and kinds to 32 characters.",
     "cost": "Issued without waiting.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_runtime_record_span"
    },
    {
     "name": "is-cancelled",
     "signature": "is-cancelled: func() -> bool",
     "docs": "True when the client, the parent invocation or the platform has asked this inferlet to stop.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_runtime_is_cancelled"
    },
    {
     "name": "time-left",
     "signature": "time-left: func() -> u64",
     "docs": "Wall time until this run must end, in milliseconds. The run ends at its own time limit or at the invocation's deadline, whichever comes first.\nThe time limit does not count the time in which the platform has preempted the inferlet and holds its calls. A preempted run may therefore\ntake up to twice its time limit. The invocation's deadline counts all time.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_runtime_time_left"
    },
    {
     "name": "now",
     "signature": "now: func() -> u64",
     "docs": "Milliseconds since the Unix epoch.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_runtime_now"
    },
    {
     "name": "random",
     "signature": "random: func() -> u32",
     "docs": "32 random bits from the host's random number generator.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_runtime_random"
    },
    {
     "name": "sleep",
     "signature": "sleep: func(milliseconds: u32) -> future<result<_, error>>",
     "docs": "Completes after the given time. Fails with `cancelled` or `deadline-exceeded` if the run must stop earlier.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "cancelled",
      "deadline-exceeded"
     ],
     "errorsTitle": "Errors",
     "c": "pie_runtime_sleep"
    }
   ]
  },
  {
   "name": "session",
   "id": "pie:inferlet/session@0.1.0",
   "docs": "The conversation with the client that invoked this inferlet. Sending costs some microseconds, and `flush` a round trip to the event log,\nabout a millisecond.",
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
     "docs": "Queues one `message` event and returns at once. `limit-exceeded` when 1 MiB of events waits to be written (each event counts 256 bytes more\nthan its content): await `flush` and send again.",
     "cost": "Answered at once.",
     "errors": [
      "limit-exceeded"
     ],
     "errorsTitle": "Errors",
     "c": "pie_session_send"
    },
    {
     "name": "flush",
     "signature": "flush: func() -> future<result<_, error>>",
     "docs": "Completes when all messages sent so far are in the invocation's event log.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_session_flush"
    },
    {
     "name": "receive",
     "signature": "receive: func() -> future<result<message, error>>",
     "docs": "The next message of the client, in order. `closed` once the client can send no more messages.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "closed"
     ],
     "errorsTitle": "Errors",
     "c": "pie_session_receive"
    }
   ]
  },
  {
   "name": "queue",
   "id": "pie:inferlet/queue@0.1.0",
   "docs": "An order of calls on one model. The inferlet issues calls without waiting, and they run in the order of their queue. Calls of different\nqueues have no order. When a call fails, all later calls of the queue that depend on it fail with its cause, and `synchronize` reports the\nfirst error. Issuing a call costs some microseconds. Waiting for a call costs its computation and a round trip to the GPU host, about 0.1 ms.",
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
     "docs": "Creates a queue for the pages and embeds of `model`. With an unknown model, every call on the queue fails with `not-found`.",
     "cost": "Issued without waiting.",
     "errors": [
      "not-found"
     ],
     "errorsTitle": "Later calls report",
     "c": "pie_queue_new"
    },
    {
     "name": "queue.set-priority",
     "signature": "set-priority: func(priority: s32)",
     "docs": "Sets the priority, 0 by default. Calls with a higher priority go first within a batch. The host limits the priority to the tenant's range.",
     "cost": "Issued without waiting.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_queue_set_priority"
    },
    {
     "name": "queue.set-depth",
     "signature": "set-depth: func(depth: u32)",
     "docs": "Marks the queue's later calls as calls of a node of a workflow: `depth` is the length of the longest path from the node to the workflow's end.\nOf a tenant's marked calls, those of earlier invocations go first, and within an invocation those with the largest depth. Marked calls only\nexchange turns with each other: no other call goes earlier or later because of a depth. Depths work at every priority, 0 included. Calls of\n`embed` and `rerank` also go in the order of invocations once the invocation has set a depth.",
     "cost": "Issued without waiting.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_queue_set_depth"
    },
    {
     "name": "queue.stop",
     "signature": "stop: func()",
     "docs": "Ends the queue's computation: calls that the device has not begun fail with `cancelled`, and so do later ones. If the device computes a\nprompt in parts, it finishes only the current part. Pages and embeds can still be allocated and freed.",
     "cost": "Issued without waiting.",
     "errors": [
      "cancelled"
     ],
     "errorsTitle": "Later calls report",
     "c": "pie_queue_stop"
    },
    {
     "name": "queue.synchronize",
     "signature": "synchronize: func() -> future<result<_, error>>",
     "docs": "Completes after all earlier calls of the queue. Fails with the first error since the last `synchronize`. Calls that take the name\nof an export or file report their errors themselves, so `synchronize` leaves these errors out, except those of `export-pages` and `save`.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_queue_synchronize"
    }
   ]
  },
  {
   "name": "allocate",
   "id": "pie:inferlet/allocate@0.1.0",
   "docs": "Memory of the model's device. An address is a `u32` in an address space that the inferlet has for each model. An invocation never gets the\nsame address twice.\nA KV page has `page-size` slots. A slot holds a key, a value, a position and the flags *filled* and *masked*.\nAn embed holds one token's embedding or one output state, and a position. The position of a state is one past the position of its input, so\nthat the state can be the next input.\nCalls that allocate, free, share or copy travel with the calls around them and cost no round trip. Calls with names (export, import, …)\ncost one round trip each; persistent exports also cost a disk write.",
   "needs": "Trait `allocate` of the model.",
   "types": [
    {
     "name": "export-info",
     "kind": "record",
     "docs": "A named snapshot of pages, which belongs to the tenant.",
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
       "docs": "Number of filled slots."
      },
      {
       "name": "next-position",
       "type": "u32",
       "docs": "The largest position plus one."
      },
      {
       "name": "persistent",
       "type": "bool",
       "docs": "True when the export survives a restart of the GPU host."
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
    },
    {
     "name": "tier",
     "kind": "enum",
     "docs": "A place that can hold pages, the fastest first: the device, the memory of the device's host, the host's disk.",
     "members": [
      {
       "name": "device",
       "type": "",
       "docs": ""
      },
      {
       "name": "memory",
       "type": "",
       "docs": ""
      },
      {
       "name": "disk",
       "type": "",
       "docs": ""
      }
     ]
    },
    {
     "name": "lease-end",
     "kind": "enum",
     "docs": "The reason for a lease's end: its time was over, or memory was needed for other work.",
     "members": [
      {
       "name": "expired",
       "type": "",
       "docs": ""
      },
      {
       "name": "pressure",
       "type": "",
       "docs": ""
      }
     ]
    },
    {
     "name": "residency",
     "kind": "record",
     "docs": "The places of an export's pages.",
     "members": [
      {
       "name": "tier",
       "type": "tier",
       "docs": "The slowest place of any page."
      },
      {
       "name": "device-pages",
       "type": "u32",
       "docs": ""
      },
      {
       "name": "memory-pages",
       "type": "u32",
       "docs": ""
      },
      {
       "name": "disk-pages",
       "type": "u32",
       "docs": ""
      },
      {
       "name": "bytes",
       "type": "u64",
       "docs": "Bytes of all keys and values."
      },
      {
       "name": "lease-ms",
       "type": "u32",
       "docs": "Milliseconds that the lease still lasts; 0 without a lease."
      },
      {
       "name": "lease-ended",
       "type": "option<lease-end>",
       "docs": "The reason for the end of the last lease. None before the first lease, while a lease lasts, and after `unpin-export` or\n`demote-export`."
      }
     ]
    }
   ],
   "calls": [
    {
     "name": "page-size",
     "signature": "page-size: func(queue: borrow<queue>) -> u32",
     "docs": "Number of slots of a KV page (8 to 32, 16 by default).",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_allocate_page_size"
    },
    {
     "name": "allocate-pages",
     "signature": "allocate-pages: func(queue: borrow<queue>, count: u32) -> result<list<u32>, error>",
     "docs": "Addresses of `count` empty pages. The device claims their memory in queue order; if the device has no memory then, the calls that\nuse the pages fail. `limit-exceeded` at once when the pages would exceed the invocation's page limit.",
     "cost": "Answered at once.",
     "errors": [
      "limit-exceeded"
     ],
     "errorsTitle": "Errors",
     "c": "pie_allocate_pages"
    },
    {
     "name": "free-pages",
     "signature": "free-pages: func(queue: borrow<queue>, pages: list<u32>)",
     "docs": "Frees pages after the earlier calls of the queue. The other holders of a shared page keep it.",
     "cost": "Issued without waiting; its errors show in the calls that depend on it.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_allocate_free_pages"
    },
    {
     "name": "allocate-embeds",
     "signature": "allocate-embeds: func(queue: borrow<queue>, count: u32) -> result<list<u32>, error>",
     "docs": "Addresses of `count` embeds.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_allocate_embeds"
    },
    {
     "name": "free-embeds",
     "signature": "free-embeds: func(queue: borrow<queue>, embeds: list<u32>)",
     "docs": "",
     "cost": "Issued without waiting; its errors show in the calls that depend on it.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_allocate_free_embeds"
    },
    {
     "name": "share-pages",
     "signature": "share-pages: func(queue: borrow<queue>, pages: list<u32>) -> result<list<u32>, error>",
     "docs": "New addresses for the same pages. A later write through either address copies the page first. Each new address starts with the source's\nmask and has its own mask from then on.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_allocate_share_pages"
    },
    {
     "name": "copy-slots",
     "signature": "copy-slots: func(queue: borrow<queue>, source: u32, source-offset: u32, destination: u32, destination-offset: u32, count: u32, shift: s32)",
     "docs": "Copies `count` slots (key, value, position, filled, masked) from one page to another, or within a page. Adds `shift` to the position of\neach copied slot and rotates its key accordingly; the position may exceed the trained context. `unsupported` when the model's rotary embedding\ncannot be shifted.",
     "cost": "Issued without waiting; its errors show in the calls that depend on it.",
     "errors": [
      "unsupported"
     ],
     "errorsTitle": "Later calls report",
     "c": "pie_allocate_copy_slots"
    },
    {
     "name": "copy-tokens",
     "signature": "copy-tokens: func(queue: borrow<queue>, sources: list<u32>, indices: list<u32>, destinations: list<u32>, positions: list<u32>)",
     "docs": "Copies single tokens. `indices` are indices into the filled slots of `sources`, in order. Keys and values go to the empty slots of\n`destinations`, in order. `positions` has a new position for each token, and the copied key is rotated to it; an empty list keeps the positions.",
     "cost": "Issued without waiting; its errors show in the calls that depend on it.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_allocate_copy_tokens"
    },
    {
     "name": "copy-embeds",
     "signature": "copy-embeds: func(queue: borrow<queue>, sources: list<u32>, destinations: list<u32>)",
     "docs": "Copies each source embed to the destination with the same index.",
     "cost": "Issued without waiting; its errors show in the calls that depend on it.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_allocate_copy_embeds"
    },
    {
     "name": "export-pages",
     "signature": "export-pages: func(queue: borrow<queue>, pages: list<u32>, name: string, persistent: bool) -> future<result<_, error>>",
     "docs": "Saves a snapshot of `pages`, with their masks, under the tenant's `name`, after the earlier calls that write them. Later writes copy the\npages first. The export outlives the inferlet and counts against the tenant. A `persistent` export is on disk when the future completes.\n`invalid-argument` when the name is in use. A name has 1 to 128 characters: letters, digits, `.`, `_`, `-`, `/`.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "invalid-argument"
     ],
     "errorsTitle": "Errors",
     "c": "pie_allocate_export_pages"
    },
    {
     "name": "import-pages",
     "signature": "import-pages: func(queue: borrow<queue>, name: string) -> future<result<imported, error>>",
     "docs": "Maps the pages of an export. Pages are copied on write. `not-found` when no export has this name; `invalid-argument` for a persistent\nexport of another model or build.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "not-found",
      "invalid-argument"
     ],
     "errorsTitle": "Errors",
     "c": "pie_allocate_import_pages"
    },
    {
     "name": "make-durable",
     "signature": "make-durable: func(queue: borrow<queue>, name: string) -> future<result<_, error>>",
     "docs": "Copies the pages of an export to the storage that the platform's machines share. Other hosts then find the name even while the GPU host\nthat keeps it is away or lost. The copy holds the present content: a later export under the same name needs another call. `unexport` also\nremoves the copy. A failed call leaves no copy. `not-found` when no export has this name; `unsupported` when the platform has no shared\nstorage, or for a name under `system/`; `limit-exceeded` beyond the tenant's share of the storage; `unavailable` when the content changes\nduring the copy, or when the export's host or the storage does not answer.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "not-found",
      "unsupported",
      "limit-exceeded",
      "unavailable"
     ],
     "errorsTitle": "Errors",
     "c": "pie_allocate_make_durable"
    },
    {
     "name": "unexport",
     "signature": "unexport: func(queue: borrow<queue>, name: string) -> future<result<_, error>>",
     "docs": "Removes a name. Inferlets that have imported it keep its pages.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_allocate_unexport"
    },
    {
     "name": "list-exports",
     "signature": "list-exports: func(queue: borrow<queue>) -> future<result<list<export-info>, error>>",
     "docs": "The tenant's exports of the queue's model, ordered by name.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_allocate_list_exports"
    },
    {
     "name": "export-residency",
     "signature": "export-residency: func(queue: borrow<queue>, name: string) -> future<result<residency, error>>",
     "docs": "Returns the present places of an export's pages. This and the following calls accept the tenant's own exports only (`unsupported` for a\nname under `system/`). They affect how long later imports wait, never the imported content. They take only device memory that is free or\nholds cached prefixes, so no inferlet waits for memory because of them.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "unsupported"
     ],
     "errorsTitle": "Errors",
     "c": "pie_allocate_export_residency"
    },
    {
     "name": "pin-export",
     "signature": "pin-export: func(queue: borrow<queue>, name: string, lease-ms: u32) -> future<result<residency, error>>",
     "docs": "Brings the pages of an export to the device as far as the device has room, and keeps these pages there for `lease-ms` (1 ms to 1 hour),\neven after the invocation has ended. Under memory pressure, the pages of waiting inferlets and of other exports leave the device first. If\nthat is not enough, the lease ends early (`pressure`) before a running inferlet has to give way. A later call replaces the lease. All leases\ntogether hold at most a quarter of the device's pages. Of this quarter, a tenant may pin half of what the leases of other tenants leave; it\nmay pin at most half of its own page quota. `limit-exceeded` for an export that the tenant may never pin, `unavailable` for one that it may\nnot pin now. An export on disk counts against the invocation's pages while it comes back: `limit-exceeded` when it has more pages than the\ninvocation may hold, `unavailable` when the device has no room for it.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "limit-exceeded",
      "unavailable"
     ],
     "errorsTitle": "Errors",
     "c": "pie_allocate_pin_export"
    },
    {
     "name": "unpin-export",
     "signature": "unpin-export: func(queue: borrow<queue>, name: string) -> future<result<residency, error>>",
     "docs": "Ends the lease.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_allocate_unpin_export"
    },
    {
     "name": "retain-export",
     "signature": "retain-export: func(queue: borrow<queue>, name: string, next-use-ms: u32) -> future<result<residency, error>>",
     "docs": "Hints that the export will be used in `next-use-ms` milliseconds. Of the tenant's exports, those without a hint leave the device first, then\nthe one whose hinted use is latest. The hint holds until its time, or until the next import; 0 removes the hint. Exports on disk ignore it.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_allocate_retain_export"
    },
    {
     "name": "prefetch-export",
     "signature": "prefetch-export: func(queue: borrow<queue>, name: string) -> future<result<residency, error>>",
     "docs": "Brings the pages of an export to the device before they are used, as far as there is room. Fails for an export on disk as `pin-export` does.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_allocate_prefetch_export"
    },
    {
     "name": "demote-export",
     "signature": "demote-export: func(queue: borrow<queue>, name: string, tier: tier) -> future<result<residency, error>>",
     "docs": "Ends the lease, and moves the export's pages off the device, except pages that an inferlet also holds. With `memory`, pages without room in\nmemory go to disk; when the disk is full, too, they stay on the device. With `disk`, a persistent export drops its pages from the device and\nfrom memory; they then count against no quota. `unsupported` for `disk` while the export has no file; `invalid-argument` for `device`.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "unsupported",
      "invalid-argument"
     ],
     "errorsTitle": "Errors",
     "c": "pie_allocate_demote_export"
    }
   ]
  },
  {
   "name": "forward",
   "id": "pie:inferlet/forward@0.1.0",
   "docs": "The transformer over KV pages. A forward returns at once. The GPU host computes it in a batch with forwards of other inferlets. The forwards of a\ndecoding batch share the time of reading the weights once. Prefill is bound by arithmetic: about two operations per weight and input.",
   "needs": "Trait `forward` of the model.",
   "types": [
    {
     "name": "mask",
     "kind": "record",
     "docs": "The keys that each input sees, run-length encoded. Row i belongs to input i. It covers the filled slots of the in-pages, in order, and then\nthe inputs. A row is a list of run lengths that alternate hidden, visible, hidden, … and add up to the row's width. The first run is hidden;\nits length is 0 when the first key is visible.",
     "members": [
      {
       "name": "runs",
       "type": "list<u32>",
       "docs": "The runs of all rows, one row after another."
      },
      {
       "name": "row-lengths",
       "type": "list<u32>",
       "docs": "The number of runs of each row."
      }
     ]
    }
   ],
   "calls": [
    {
     "name": "forward",
     "signature": "forward: func(queue: borrow<queue>, in-pages: list<u32>, in-embeds: list<u32>, out-pages: list<u32>, out-embeds: list<u32>, mask: option<mask>)",
     "docs": "Computes `in-embeds`, which attend to the filled, unmasked slots of `in-pages` and to each other. The key and value of input i go to the\ni-th empty slot of `out-pages`; without out-pages they exist for this call only. A page may be both in and out: its filled slots are read\nfirst. The states of the last inputs, one for each embed of `out-embeds`, are written to `out-embeds`.\nUsage: each embed that receives a token or a part of an image counts one token, which includes one computation as an input. Each further\ncomputation of an input counts one token, also when the input is a state or a copy.\nWithout a mask, an input sees its own key and all keys at smaller positions.",
     "cost": "Issued without waiting; its errors show in the calls that depend on it.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_forward"
    },
    {
     "name": "mask-page",
     "signature": "mask-page: func(queue: borrow<queue>, page: u32, slots: u32)",
     "docs": "Masks the slots of a page whose bits are set in `slots` (bit 0 is slot 0), and unmasks the others. Other addresses of\na shared page keep their masks.",
     "cost": "Issued without waiting; its errors show in the calls that depend on it.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_forward_mask_page"
    }
   ]
  },
  {
   "name": "input-text",
   "id": "pie:inferlet/input-text@0.1.0",
   "docs": "Writes tokens into embeds. The call travels with the forward after it and takes no time of its own.",
   "needs": "Trait `input-text` of the model.",
   "types": [],
   "calls": [
    {
     "name": "embed-text",
     "signature": "embed-text: func(queue: borrow<queue>, tokens: list<u32>, positions: list<u32>, embeds: list<u32>)",
     "docs": "Writes the embedding of `tokens[i]`, at `positions[i]`, into `embeds[i]`. The three lists have the same length.",
     "cost": "Issued without waiting; its errors show in the calls that depend on it.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_input_text_embed_text"
    }
   ]
  },
  {
   "name": "output-text",
   "id": "pie:inferlet/output-text@0.1.0",
   "docs": "Reads embeds (each holds a token's embedding or a state), and the distribution of the token after a state. A call of\n`next-distribution` directly after the forward that writes the state, in the same queue, can share the forward's device step.",
   "needs": "Trait `output-text` of the model.",
   "types": [
    {
     "name": "distribution",
     "kind": "record",
     "docs": "The most probable tokens, in order of falling probability. Tokens with equal logits are ordered by id.",
     "members": [
      {
       "name": "tokens",
       "type": "list<u32>",
       "docs": ""
      },
      {
       "name": "log-probabilities",
       "type": "list<f32>",
       "docs": "Natural logarithms of the tokens' probabilities over the whole vocabulary, at temperature 1."
      }
     ]
    }
   ],
   "calls": [
    {
     "name": "next-distribution",
     "signature": "next-distribution: func(queue: borrow<queue>, embed: u32, top-k: u32) -> future<result<distribution, error>>",
     "docs": "The distribution of the token that follows the state in `embed`: the `top-k` most probable tokens (1 to the host's cap of 256).",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_output_text_next_distribution"
    },
    {
     "name": "log-probabilities",
     "signature": "log-probabilities: func(queue: borrow<queue>, embed: u32, tokens: list<u32>) -> future<result<list<f32>, error>>",
     "docs": "Natural logarithms of the probabilities of `tokens` after the state in `embed`, over the whole vocabulary, at temperature 1.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_output_text_log_probabilities"
    },
    {
     "name": "entropy",
     "signature": "entropy: func(queue: borrow<queue>, embed: u32) -> future<result<f32, error>>",
     "docs": "The entropy of the distribution after the state in `embed`, in nats.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_output_text_entropy"
    },
    {
     "name": "read-embed",
     "signature": "read-embed: func(queue: borrow<queue>, embed: u32) -> future<result<list<f32>, error>>",
     "docs": "The values of an embed, one for each dimension of the model's hidden size.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_output_text_read_embed"
    }
   ]
  },
  {
   "name": "fused",
   "id": "pie:inferlet/fused@0.1.0",
   "docs": "Embed, forward and sample in one call. A token costs one call, and with `run` less than one.",
   "needs": "Trait `fused` of the model.",
   "types": [
    {
     "name": "sampler",
     "kind": "record",
     "docs": "Sampling parameters. `temperature` 0 is greedy and ignores the other parameters. `top-k` 0, `top-p` 1 and `min-p` 0 switch these cuts off; a draw\nwithout a cut is from the whole vocabulary. The cuts apply in the order top-k, top-p, min-p, to probabilities after the temperature. Each keeps\nthe first tokens in order of falling probability, then rising id, and is relative to the tokens that the cut before it kept. On NVIDIA cards,\na draw is from the 256 most probable tokens at most, and the cuts are relative to those. Equal seeds give equal tokens: the draw depends only on\nthe seed and on the input's position.",
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
     "docs": "Result of a step for each of its last `rows` inputs.",
     "members": [
      {
       "name": "none",
       "type": "",
       "docs": "Nothing. The step only fills the cache."
      },
      {
       "name": "sample",
       "type": "sampler",
       "docs": "One sampled token for each row."
      },
      {
       "name": "distributions",
       "type": "u32",
       "docs": "For each row, this number (`top-k`) of the most probable tokens."
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
       "docs": "Number of last inputs that get an output."
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
       "docs": "One token for each row with `sample`, otherwise empty."
      },
      {
       "name": "distributions",
       "type": "list<distribution>",
       "docs": "One distribution for each row with `distributions`, otherwise empty."
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
       "docs": "The first input. Each later input is the token sampled before it, at the next position."
      },
      {
       "name": "position",
       "type": "u32",
       "docs": "Position of the first input."
      },
      {
       "name": "pages",
       "type": "list<u32>",
       "docs": "The pages of the sequence, in order, with empty slots for `max-tokens` tokens. The run reads them and appends to them."
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
       "docs": "Decoding stops after it samples one of these tokens. The run returns this token as its last, without its key and value in the cache. With\nmore than 256 stop tokens the run fails with `invalid-argument`."
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
       "docs": "The run was stopped, or the grammar allows no further text."
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
       "docs": "The tokens since the last `next`, in order; at least one unless the run has finished."
      },
      {
       "name": "finished",
       "type": "option<finish-reason>",
       "docs": "Set in the last chunk."
      }
     ]
    },
    {
     "name": "frame",
     "kind": "record",
     "docs": "Format of the messages that carry the pieces of a text.",
     "members": [
      {
       "name": "opening",
       "type": "string",
       "docs": "Text of a separate message before the first piece. An empty text sends no such message."
      },
      {
       "name": "before",
       "type": "string",
       "docs": "Text before each piece. The piece itself is written as a JSON string."
      },
      {
       "name": "after",
       "type": "string",
       "docs": "Text after each piece."
      }
     ]
    },
    {
     "name": "pipe-request",
     "kind": "record",
     "docs": "Options of `run.pipe`.",
     "members": [
      {
       "name": "before",
       "type": "list<u32>",
       "docs": "The last tokens of the text before the run, including tokens whose bytes do not complete a character yet. The run's text continues them."
      },
      {
       "name": "held",
       "type": "string",
       "docs": "The unsent end of the text before the run: it may be the beginning of a stop string."
      },
      {
       "name": "stops",
       "type": "list<string>",
       "docs": "Stop strings: they end the run and are not sent. At most 64 strings with 1,024 bytes together, otherwise `limit-exceeded`."
      },
      {
       "name": "frame",
       "type": "option<frame>",
       "docs": "Format of the messages. By default, each piece is a message of its own. The texts have at most 8,192 bytes together, otherwise\n`limit-exceeded`."
      }
     ]
    },
    {
     "name": "piped",
     "kind": "record",
     "docs": "Result of `run.pipe`.",
     "members": [
      {
       "name": "tokens",
       "type": "list<u32>",
       "docs": "The run's tokens since the last `next` or `pipe`, in order, up to the token that completed a stop string."
      },
      {
       "name": "text",
       "type": "string",
       "docs": "The sent text."
      },
      {
       "name": "held",
       "type": "string",
       "docs": "The unsent end of the text: it may be the beginning of a stop string."
      },
      {
       "name": "stop",
       "type": "option<string>",
       "docs": "The stop string that ended the run. The platform discards the tokens after the string. It charges them only if it had decoded them before the\ncall of `pipe`."
      },
      {
       "name": "finished",
       "type": "option<finish-reason>",
       "docs": "Unset after a stop string, and when an error ended the run: the next call reports the error."
      }
     ]
    },
    {
     "name": "run",
     "kind": "resource",
     "docs": "Decodes tokens on the device, ahead of the inferlet.",
     "members": []
    }
   ],
   "calls": [
    {
     "name": "step",
     "signature": "step: func(queue: borrow<queue>, request: step-request) -> future<result<step-result, error>>",
     "docs": "Embeds `tokens`, computes them as `forward` does, and completes with the output of the last `rows` inputs.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_fused_step"
    },
    {
     "name": "run.constructor",
     "signature": "constructor(queue: borrow<queue>, request: run-request)",
     "docs": "Starts decoding. `next` reports failures.",
     "cost": "Issued without waiting.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_fused_run_new"
    },
    {
     "name": "run.next",
     "signature": "next: func() -> future<result<run-chunk, error>>",
     "docs": "The tokens that the run has decoded since the last `next`. Waits for at least one unless the run has finished.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_fused_run_next"
    },
    {
     "name": "run.pipe",
     "signature": "pipe: func(request: pipe-request) -> future<result<piped, error>>",
     "docs": "Decodes until the run has finished, and sends its text to the client in `message` events meanwhile, without waking the inferlet. A run\nhas one `next` or `pipe` in progress at a time, and an inferlet at most 256 pipes.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_fused_run_pipe"
    },
    {
     "name": "run.stop",
     "signature": "stop: func()",
     "docs": "Stops the run. Tokens that are already decoded are still returned. Dropping the resource stops the run, too, and charges the tokens that are\ndecoded but not read. After a stop string of `pipe`, only tokens that were decoded before the call of `pipe` are charged.",
     "cost": "Issued without waiting.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_fused_run_stop"
    }
   ]
  },
  {
   "name": "tokenize",
   "id": "pie:inferlet/tokenize@0.1.0",
   "docs": "Converts text to tokens and back, without a device. A call takes about a microsecond per token; tenants take turns with long texts.\n`limit-exceeded` when one call has more than 131,072 characters (split longer texts at ends of lines), 131,072 tokens, or 8,192 chat messages.",
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
     "name": "thought-format",
     "kind": "record",
     "docs": "How a model writes a thought before its answer.",
     "members": [
      {
       "name": "open",
       "type": "string",
       "docs": "Text before a thought, as the chat template writes it: `<think>\\n`. A prompt may end with this text; the model then goes on inside the thought."
      },
      {
       "name": "close",
       "type": "string",
       "docs": "Text between the thought and the answer. To end a thought, append this text with its special tokens parsed."
      },
      {
       "name": "begin",
       "type": "string",
       "docs": "Mark before a thought in generated text, whose white space may differ from the template's: `<think>`."
      },
      {
       "name": "end",
       "type": "string",
       "docs": "Mark after a thought in generated text: `</think>`. Like `begin`, it may consist of special tokens, which `detokenize` omits by default."
      },
      {
       "name": "field",
       "type": "option<string>",
       "docs": "Member of an assistant's message in which the template reads a thought, such as `reasoning_content`; none if it reads none."
      },
      {
       "name": "toggles",
       "type": "list<string>",
       "docs": "Boolean variables of the template that turn thoughts on and off, such as `enable_thinking`."
      },
      {
       "name": "efforts",
       "type": "list<string>",
       "docs": "Values that the template takes as its variable `reasoning_effort`, in rising order; empty if it does not read this variable."
      }
     ]
    },
    {
     "name": "detokenizer",
     "kind": "resource",
     "docs": "Detokenizes a stream. It returns only complete characters.",
     "members": []
    }
   ],
   "calls": [
    {
     "name": "tokenize",
     "signature": "tokenize: func(model: string, text: string, special: bool) -> result<list<u32>, error>",
     "docs": "The token ids of `text`, without added special tokens. Special tokens inside the text are recognised when `special` is true.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_tokenize"
    },
    {
     "name": "detokenize",
     "signature": "detokenize: func(model: string, tokens: list<u32>, special: bool) -> result<string, error>",
     "docs": "The text of `tokens`. Special tokens are omitted unless `special` is true.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_tokenize_detokenize"
    },
    {
     "name": "special-tokens",
     "signature": "special-tokens: func(model: string) -> result<special-token-ids, error>",
     "docs": "",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_tokenize_special_tokens"
    },
    {
     "name": "vocabulary",
     "signature": "vocabulary: func(model: string) -> result<list<list<u8>>, error>",
     "docs": "The bytes of every token, indexed by id.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_tokenize_vocabulary"
    },
    {
     "name": "chat-template",
     "signature": "chat-template: func(model: string, messages: list<chat-message>, add-generation-prompt: bool) -> result<string, error>",
     "docs": "Applies the model's chat template to `messages`. Tokenize the returned text with `special`. `unsupported` when the model has no template.",
     "cost": "Answered at once.",
     "errors": [
      "unsupported"
     ],
     "errorsTitle": "Errors",
     "c": "pie_tokenize_chat_template"
    },
    {
     "name": "render-chat",
     "signature": "render-chat: func(model: string, variables: string) -> result<string, error>",
     "docs": "Applies the model's chat template to `variables`, a JSON object with `messages` (each with any members that the template knows, such\nas `tool_calls`), `tools`, `documents`, `add_generation_prompt`, … Variables such as `bos_token` and `eos_token` default to the model's.\n`invalid-argument` when the text is not a JSON object or the template refuses it; `unsupported` when the model has no template.",
     "cost": "Answered at once.",
     "errors": [
      "invalid-argument",
      "unsupported"
     ],
     "errorsTitle": "Errors",
     "c": "pie_tokenize_render_chat"
    },
    {
     "name": "thoughts",
     "signature": "thoughts: func(model: string) -> result<option<thought-format>, error>",
     "docs": "How the model writes thoughts: by its setting in `pie.toml`, by its chat template, or by known marks among its tokens. Returns none for a model\nthat writes no thoughts, or whose thoughts cannot be told from its answers.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_tokenize_thoughts"
    },
    {
     "name": "detokenizer.constructor",
     "signature": "constructor(model: string)",
     "docs": "",
     "cost": "Issued without waiting.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_tokenize_detokenizer_new"
    },
    {
     "name": "detokenizer.push",
     "signature": "push: func(tokens: list<u32>) -> result<string, error>",
     "docs": "The text of the characters that these tokens complete.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_tokenize_detokenizer_push"
    },
    {
     "name": "detokenizer.finish",
     "signature": "finish: func() -> string",
     "docs": "The remaining text, with U+FFFD for bytes that do not form a character.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_tokenize_detokenizer_finish"
    }
   ]
  },
  {
   "name": "grammar",
   "id": "pie:inferlet/grammar@0.1.0",
   "docs": "Grammars that constrain decoding to a format. The runtime compiles and matches them. A mask of the allowed tokens travels with the fused\ncall, and the device applies the mask before it samples. Calls of one matcher run in order.\nCompiling takes milliseconds. A mask takes about 0.2 ms in a state that no matcher has visited before, otherwise microseconds.",
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
       "docs": "A JSON schema as text. With `\"x-guidance\": {\"whitespace_flexible\": false}` at its root, the texts have no whitespace between tokens."
      },
      {
       "name": "regex",
       "type": "string",
       "docs": "A regular expression that the whole text must match."
      },
      {
       "name": "ebnf",
       "type": "string",
       "docs": "A grammar in EBNF (the GBNF of llama.cpp) with the start rule `root`."
      },
      {
       "name": "json",
       "type": "",
       "docs": "Any JSON text."
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
       "docs": "True when an end-of-sequence token is allowed now."
      },
      {
       "name": "must-end",
       "type": "bool",
       "docs": "True when only the end is allowed, or the matcher has accepted the end."
      }
     ]
    },
    {
     "name": "compiled",
     "kind": "resource",
     "docs": "A grammar that is compiled for the vocabulary of one model.",
     "members": []
    },
    {
     "name": "matcher",
     "kind": "resource",
     "docs": "The state of a text in a grammar.",
     "members": []
    }
   ],
   "calls": [
    {
     "name": "step",
     "signature": "step: func(queue: borrow<queue>, matcher: borrow<matcher>, request: step-request) -> future<result<step-result, error>>",
     "docs": "Like `fused.step`, with the matcher's mask applied to the only row of output, which must be `sample` or `distributions`. The matcher does\nnot accept the sampled token by itself: call `accept`. The call enters its queue once the mask is known, so await it before calls that\nmust follow it.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_grammar_step"
    },
    {
     "name": "verify",
     "signature": "verify: func(queue: borrow<queue>, matcher: borrow<matcher>, adapter: option<string>, request: step-request) -> future<result<step-result, error>>",
     "docs": "Like `step`, for several rows of output, and with an adapter if one is named. The inputs of all rows but the first are guesses at the\ntokens that follow the matcher's text. Each row has the mask of the text with all guesses up to the row's input. If a guess does not fit,\nits row and the rows after it have no mask. The matcher accepts none of the guesses. `limit-exceeded` for more than 64 rows.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "limit-exceeded"
     ],
     "errorsTitle": "Errors",
     "c": "pie_grammar_verify"
    },
    {
     "name": "start-run",
     "signature": "start-run: func(queue: borrow<queue>, matcher: borrow<matcher>, request: run-request) -> run",
     "docs": "A run under the matcher's masks, with its forced tokens (see `jump`). The matcher accepts the run's tokens; `invalid-argument` when other\ncalls change the matcher meanwhile. The run ends behind the first stop token, sampled or forced. When nothing may follow, the run finishes\nwith `stopped`. Its steps enter the queue one by one while a `next` or `pipe` is in progress, so await that call before calls that must follow\nthe run. A `next` returns after the first step that ends 25 ms or more after `next` was called, and with at least one token. Each step counts\nthe tokens that it computes. `limit-exceeded` for more than 8,192 pages or 262,144 stop tokens.",
     "cost": "Answered at once.",
     "errors": [
      "invalid-argument",
      "limit-exceeded"
     ],
     "errorsTitle": "Later calls report",
     "c": "pie_grammar_start_run"
    },
    {
     "name": "compiled.constructor",
     "signature": "constructor(model: string, source: source)",
     "docs": "Starts compiling. `ready` and the matchers report failures.",
     "cost": "Issued without waiting.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_grammar_compiled_new"
    },
    {
     "name": "compiled.ready",
     "signature": "ready: func() -> future<result<_, error>>",
     "docs": "`invalid-argument` when the grammar does not compile or is too large, `limit-exceeded` when compiling takes too much time or memory, or the\ntenant's share of memory is full, `unavailable` when no worker is free. Later calls of `ready` have the outcome of the first.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "invalid-argument",
      "limit-exceeded",
      "unavailable"
     ],
     "errorsTitle": "Errors",
     "c": "pie_grammar_compiled_ready"
    },
    {
     "name": "matcher.constructor",
     "signature": "constructor(grammar: borrow<compiled>)",
     "docs": "",
     "cost": "Issued without waiting.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_grammar_matcher_new"
    },
    {
     "name": "matcher.accept",
     "signature": "accept: func(tokens: list<u32>) -> future<result<bool, error>>",
     "docs": "Accepts the next tokens. Completes with false, and accepts none of them, when one does not fit.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_grammar_matcher_accept"
    },
    {
     "name": "matcher.mask",
     "signature": "mask: func() -> future<result<list<u32>, error>>",
     "docs": "The tokens that are allowed next: bit `t % 32` of word `t / 32` for token `t`. (JavaScript guests get a word with its highest bit set as a\nnegative number.) Masks cannot express some keywords of JSON schemas: the matcher checks these on the whole text, which may end only\nif it passes. `invalid-argument` when the text fails this check and cannot go on either: take tokens back with `rollback`.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "invalid-argument"
     ],
     "errorsTitle": "Errors",
     "c": "pie_grammar_matcher_mask"
    },
    {
     "name": "matcher.status",
     "signature": "status: func() -> future<result<match-status, error>>",
     "docs": "Tells if the text may end now, and if it must. Fails like `mask`.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_grammar_matcher_status"
    },
    {
     "name": "matcher.jump",
     "signature": "jump: func(most: u32) -> future<result<list<u32>, error>>",
     "docs": "Accepts and returns the forced tokens, at most `most`: those of the text that must come next. Returns none where the grammar leaves a choice,\nor where the text may end. The model's tokenizer makes the tokens of the forced text. Tokens at the end of this text are left out if the\ntext after them could change them. Append the returned tokens to the sequence and compute them in one pass, instead of sampling each.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_grammar_matcher_jump"
    },
    {
     "name": "matcher.fork",
     "signature": "fork: func() -> matcher",
     "docs": "A separate matcher in the same state.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_grammar_matcher_fork"
    },
    {
     "name": "matcher.rollback",
     "signature": "rollback: func(tokens: u32) -> future<result<_, error>>",
     "docs": "Undoes the last `tokens` accepted tokens.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_grammar_matcher_rollback"
    }
   ]
  },
  {
   "name": "penalties",
   "id": "pie:inferlet/penalties@0.1.0",
   "docs": "Runs that change the logits of single tokens before they sample. The sampler sees the changed distribution of the whole vocabulary.",
   "needs": "Trait `penalties` of the model.",
   "types": [
    {
     "name": "logit-changes",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "frequency",
       "type": "f32",
       "docs": "Subtracted from a token's logit once for each occurrence of the token in `chosen` or in the run; from minus to plus a million."
      },
      {
       "name": "presence",
       "type": "f32",
       "docs": "Subtracted once from the logit of each token that occurs in `chosen` or in the run; from minus to plus a million."
      },
      {
       "name": "bias-tokens",
       "type": "list<u32>",
       "docs": "Tokens whose logits get a bias; at most 1,024, otherwise `limit-exceeded`."
      },
      {
       "name": "bias-values",
       "type": "list<f32>",
       "docs": "The bias of each of `bias-tokens`: from minus to plus a million, or negative infinity, which excludes the token."
      },
      {
       "name": "chosen",
       "type": "list<u32>",
       "docs": "The tokens that were sampled before the run, at most 8,192, otherwise `limit-exceeded`. The run itself counts the tokens that it samples."
      }
     ]
    }
   ],
   "calls": [
    {
     "name": "start-run",
     "signature": "start-run: func(queue: borrow<queue>, request: run-request, changes: logit-changes) -> run",
     "docs": "Like `fused.run`. `temperature` 0 takes the most probable token after the changes. The run fails with `invalid-argument` when the changes\nexclude all tokens.",
     "cost": "Answered at once.",
     "errors": [
      "invalid-argument"
     ],
     "errorsTitle": "Later calls report",
     "c": "pie_penalties_start_run"
    }
   ]
  },
  {
   "name": "introspect",
   "id": "pie:inferlet/introspect@0.1.0",
   "docs": "Attention scores, for strategies that evict tokens with little attention. A forward that returns scores computes its attention a second\ntime, and runs in separate batches.",
   "needs": "Trait `introspect` of the model.",
   "types": [],
   "calls": [
    {
     "name": "forward-scores",
     "signature": "forward-scores: func(queue: borrow<queue>, in-pages: list<u32>, in-embeds: list<u32>, out-pages: list<u32>, out-embeds: list<u32>, mask: option<mask>) -> future<result<list<f32>, error>>",
     "docs": "Like `forward`. Completes with the attention that each slot received, summed over the inputs and averaged over layers and heads: first\n`page-size` numbers for each of `in-pages` (0 for empty and masked slots), then one number for each input. The numbers add up to the\nnumber of inputs.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_introspect_forward_scores"
    }
   ]
  },
  {
   "name": "kv-files",
   "id": "pie:inferlet/kv-files@0.1.0",
   "docs": "The KV cache as files (Symphony, HotOS '25). A file is a sequence of tokens' keys and values for one model, with or without a name. An\ninferlet that opens a name sees the content that was saved last. An inferlet that holds the lock of a name may save new content. Names\nbelong to a tenant. Operators write the names under `system/`, and every tenant can read them. An opened file shares its pages, so opening\nand saving cost one round trip, independent of the number of tokens.",
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
       "docs": "A private view. Pages are copied on write."
      },
      {
       "name": "write",
       "type": "",
       "docs": "A view with the file's lock, which allows saving. `unavailable` while another inferlet holds the lock. An inferlet may open a name for\nwriting several times; the lock is released with the last of these files."
      }
     ]
    },
    {
     "name": "rights",
     "kind": "enum",
     "docs": "Rights of the tenant's other inferlets on a file.",
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
       "docs": "The function that created the file."
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
     "name": "make-durable",
     "signature": "make-durable: func(queue: borrow<queue>, name: string) -> future<result<_, error>>",
     "docs": "Copies the content that was saved last under a name to the storage that the platform's machines share. While the GPU host that keeps the name\nand its lock is away or lost, inferlets on other hosts can then open the name for reading. A later save or `remove` ends the copy. Needs the\nright to write the file. Fails as `make-durable` of `allocate` does.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_kv_files_make_durable"
    },
    {
     "name": "remove",
     "signature": "remove: func(queue: borrow<queue>, name: string) -> future<result<_, error>>",
     "docs": "Removes a name. Inferlets that have opened it keep their content.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_kv_files_remove"
    },
    {
     "name": "files",
     "signature": "files: func(queue: borrow<queue>, prefix: string) -> future<result<list<file-info>, error>>",
     "docs": "Files of the queue's model whose names begin with `prefix`, ordered by name.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_kv_files_files"
    },
    {
     "name": "file.constructor",
     "signature": "constructor(queue: borrow<queue>, name: option<string>, access: access)",
     "docs": "Opens `name`, or creates a file without a name when `name` is none. `ready` reports failures. The calls of the file run on `queue`.\nCalls made before the file is ready wait until it is.",
     "cost": "Issued without waiting.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_kv_files_file_new"
    },
    {
     "name": "file.ready",
     "signature": "ready: func() -> future<result<_, error>>",
     "docs": "Completes when the file is usable. Fails with `not-found`, `unsupported` (no right) or `unavailable` (locked).",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "not-found",
      "unsupported",
      "unavailable"
     ],
     "errorsTitle": "Errors",
     "c": "pie_kv_files_file_ready"
    },
    {
     "name": "file.tokens",
     "signature": "tokens: func() -> u32",
     "docs": "Number of tokens; known once the file is ready.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_kv_files_file_tokens"
    },
    {
     "name": "file.next-position",
     "signature": "next-position: func() -> u32",
     "docs": "The first free position: no token is at this position or after it. Known once the file is ready.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_kv_files_file_next_position"
    },
    {
     "name": "file.pages",
     "signature": "pages: func() -> list<u32>",
     "docs": "The pages of the file, for `forward` and `fused` to read.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_kv_files_file_pages"
    },
    {
     "name": "file.reserve",
     "signature": "reserve: func(tokens: u32) -> result<list<u32>, error>",
     "docs": "The pages of the file with empty slots for `tokens` more tokens after the filled slots, for `forward` and `fused` to fill. Then call\n`filled`: the file itself does not count the tokens that these calls write. `unavailable` until the file is ready; `limit-exceeded` when the\npages would exceed the invocation's page limit.",
     "cost": "Answered at once.",
     "errors": [
      "unavailable",
      "limit-exceeded"
     ],
     "errorsTitle": "Errors",
     "c": "pie_kv_files_file_reserve"
    },
    {
     "name": "file.filled",
     "signature": "filled: func(tokens: u32, next-position: u32)",
     "docs": "Adds `tokens` that `forward` or `fused` wrote into the reserved slots to the file. `next-position` is the first position after them.",
     "cost": "Issued without waiting.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_kv_files_file_filled"
    },
    {
     "name": "file.pred",
     "signature": "pred: func(tokens: list<u32>, positions: list<u32>, top-k: u32) -> future<result<list<distribution>, error>>",
     "docs": "Computes tokens, appends them, and returns for each token the distribution of the next token: its `top-k` most probable tokens (1 to the\nhost's cap of 256).",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_kv_files_file_pred"
    },
    {
     "name": "file.fork",
     "signature": "fork: func() -> file",
     "docs": "A file without a name and with the same content. Pages are copied on write.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_kv_files_file_fork"
    },
    {
     "name": "file.extract",
     "signature": "extract: func(indices: list<u32>, renumber: option<u32>) -> file",
     "docs": "A file without a name that holds the tokens at `indices`, in this order. With `renumber`, their positions become `renumber`,\n`renumber + 1`, … and their keys are rotated accordingly; otherwise the tokens keep their positions. `ready` reports failures:\n`invalid-argument` for an index without a token, `limit-exceeded` for more tokens than the invocation's pages hold, and, like\n`synchronize`, the first error of the queue.",
     "cost": "Answered at once.",
     "errors": [
      "invalid-argument",
      "limit-exceeded"
     ],
     "errorsTitle": "Later calls report",
     "c": "pie_kv_files_file_extract"
    },
    {
     "name": "file.merge",
     "signature": "merge: func(other: borrow<file>, keep-positions: bool) -> future<result<_, error>>",
     "docs": "Appends the tokens of another file of the same model. They are renumbered to follow this file's tokens, unless `keep-positions` is set.\nLike `synchronize`, `merge` reports the first error of the queue.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_kv_files_file_merge"
    },
    {
     "name": "file.save",
     "signature": "save: func(name: string, persistent: bool, rights: rights) -> future<result<_, error>>",
     "docs": "Saves the file under its own name, which needs the lock, or under a new name. `invalid-argument` when another file has the name.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "invalid-argument"
     ],
     "errorsTitle": "Errors",
     "c": "pie_kv_files_file_save"
    },
    {
     "name": "file.unlock",
     "signature": "unlock: func()",
     "docs": "Releases the lock. Dropping the file does the same.",
     "cost": "Issued without waiting.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_kv_files_file_unlock"
    }
   ]
  },
  {
   "name": "input-image",
   "id": "pie:inferlet/input-image@0.1.0",
   "docs": "Encodes images into embeds, for models with a vision encoder.",
   "needs": "Trait `input-image` of the model.",
   "types": [
    {
     "name": "dimensions",
     "kind": "record",
     "docs": "The size of an image in pixels.",
     "members": [
      {
       "name": "width",
       "type": "u32",
       "docs": ""
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
     "docs": "The size of a PNG or JPEG image, read from its first bytes. `invalid-argument` for other data.",
     "cost": "Answered at once.",
     "errors": [
      "invalid-argument"
     ],
     "errorsTitle": "Errors",
     "c": "pie_input_image_image_dimensions"
    },
    {
     "name": "image-embeds",
     "signature": "image-embeds: func(queue: borrow<queue>, size: dimensions) -> result<u32, error>",
     "docs": "The number of embeds that an image of this size takes on the queue's model. `unsupported` when the model does not have the trait\n`input-image`, `invalid-argument` when the image has too many pixels.",
     "cost": "Answered at once.",
     "errors": [
      "unsupported",
      "invalid-argument"
     ],
     "errorsTitle": "Errors",
     "c": "pie_input_image_image_embeds"
    },
    {
     "name": "image-token",
     "signature": "image-token: func(model: string) -> result<u32, error>",
     "docs": "The token that a model's chat template writes in place of an image (LLaVA: `<image>`). `unsupported` when the model does not have the trait\n`input-image`, or when its config names no such token.",
     "cost": "Answered at once.",
     "errors": [
      "unsupported"
     ],
     "errorsTitle": "Errors",
     "c": "pie_input_image_image_token"
    },
    {
     "name": "embed-image",
     "signature": "embed-image: func(queue: borrow<queue>, image: list<u8>, positions: list<u32>, embeds: list<u32>) -> future<result<_, error>>",
     "docs": "Encodes a PNG or JPEG image (at most 8 MiB and 16 million pixels) into `embeds`, at `positions`. `image-embeds` tells how many embeds are\nneeded. The call costs a pass of the vision encoder, about as much as a prefill of the same number of tokens.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_input_image_embed_image"
    }
   ]
  },
  {
   "name": "adapter",
   "id": "pie:inferlet/adapter@0.1.0",
   "docs": "Low-rank adapters (Hu et al., LoRA, 2021) that the platform's operator installed beside a model. Calls share the keys and values of equal\nprefixes only with calls of the same adapter; calls without an adapter share them among themselves.",
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
       "docs": "True when the adapter is in the device's memory."
      }
     ]
    }
   ],
   "calls": [
    {
     "name": "list-adapters",
     "signature": "list-adapters: func(queue: borrow<queue>) -> future<result<list<adapter-info>, error>>",
     "docs": "The adapters of the queue's model, ordered by name.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_adapter_list_adapters"
    },
    {
     "name": "load-adapter",
     "signature": "load-adapter: func(queue: borrow<queue>, name: string) -> future<result<_, error>>",
     "docs": "Loads an adapter into the device's memory, so that the first call with the adapter need not wait for it. `not-found` when no adapter\nhas this name, `invalid-argument` for a malformed name.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "not-found",
      "invalid-argument"
     ],
     "errorsTitle": "Errors",
     "c": "pie_adapter_load_adapter"
    },
    {
     "name": "forward-with-adapter",
     "signature": "forward-with-adapter: func(queue: borrow<queue>, adapter: string, in-pages: list<u32>, in-embeds: list<u32>, out-pages: list<u32>, out-embeds: list<u32>, mask: option<mask>)",
     "docs": "Like `forward`, with the adapter's matrices added to those of the model. Calls with different adapters share a batch only if the\nbackend supports this.",
     "cost": "Issued without waiting; its errors show in the calls that depend on it.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_adapter_forward_with_adapter"
    },
    {
     "name": "step",
     "signature": "step: func(queue: borrow<queue>, adapter: string, request: step-request) -> future<result<step-result, error>>",
     "docs": "Like `fused.step`, with the adapter.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_adapter_step"
    }
   ]
  },
  {
   "name": "embedding",
   "id": "pie:inferlet/embedding@0.1.0",
   "docs": "Turns texts into vectors with an encoder: texts of like meaning have vectors of like direction. Needs no queue and no pages.",
   "needs": "An encoder that the function was granted; `embedding.encoders` lists them.",
   "types": [
    {
     "name": "encoder-info",
     "kind": "record",
     "docs": "A model that encodes texts.",
     "members": [
      {
       "name": "name",
       "type": "string",
       "docs": ""
      },
      {
       "name": "kind",
       "type": "encoder-kind",
       "docs": ""
      },
      {
       "name": "size",
       "type": "u32",
       "docs": "Number of values of a vector; 1 for a reranker."
      },
      {
       "name": "context-length",
       "type": "u32",
       "docs": "Maximum tokens of a text, or for a reranker of a query and a document together, special tokens included."
      }
     ]
    },
    {
     "name": "encoder-kind",
     "kind": "enum",
     "docs": "`embed` takes models of the kind `embedding`, `rerank` those of the kind `reranker`.",
     "members": [
      {
       "name": "embedding",
       "type": "",
       "docs": ""
      },
      {
       "name": "reranker",
       "type": "",
       "docs": ""
      }
     ]
    },
    {
     "name": "vectors",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "size",
       "type": "u32",
       "docs": "Number of values of each vector."
      },
      {
       "name": "values",
       "type": "list<f32>",
       "docs": "The vectors of all texts, one after the other, in the order of the texts."
      },
      {
       "name": "tokens",
       "type": "u32",
       "docs": "Tokens that were encoded."
      },
      {
       "name": "cut",
       "type": "u32",
       "docs": "Number of texts that were longer than the model takes: their ends were left out."
      }
     ]
    }
   ],
   "calls": [
    {
     "name": "encoders",
     "signature": "encoders: func() -> list<encoder-info>",
     "docs": "The encoders that the function was granted.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_embedding_encoders"
    },
    {
     "name": "embed",
     "signature": "embed: func(model: string, texts: list<string>) -> future<result<vectors, error>>",
     "docs": "The vectors of up to 256 texts of up to 262,144 characters in all. An empty name selects the first embedding model. The call costs a pass\nof the encoder; texts of many inferlets are computed together. Dropping the future before its value is there ends the call: texts that the\ndevice has not begun are not computed.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_embedding_embed"
    }
   ]
  },
  {
   "name": "rerank",
   "id": "pie:inferlet/rerank@0.1.0",
   "docs": "Scores how well documents answer a query, with an encoder that reads both together. Needs no queue and no pages.",
   "needs": "An encoder that the function was granted; `embedding.encoders` lists them.",
   "types": [
    {
     "name": "scores",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "values",
       "type": "list<f32>",
       "docs": "One number for each document, in the order of the documents: larger is better. Compare a number only with others of the same\nmodel. For most models, the logistic function of the number is a probability."
      },
      {
       "name": "tokens",
       "type": "u32",
       "docs": "Tokens that were encoded."
      },
      {
       "name": "cut",
       "type": "u32",
       "docs": "Number of pairs of query and document that were longer than the model takes: the end of the pair's longer text was left out."
      }
     ]
    }
   ],
   "calls": [
    {
     "name": "rerank",
     "signature": "rerank: func(model: string, query: string, documents: list<string>) -> future<result<scores, error>>",
     "docs": "The scores of up to 256 documents of up to 262,144 characters in all, with the query counted once for each document. An empty name selects\nthe first reranker. Dropping the future ends the call, as for `embed`.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_rerank"
    }
   ]
  },
  {
   "name": "index",
   "id": "pie:inferlet/index@0.1.0",
   "docs": "Durable indexes of the tenant, which find entries by meaning, by words, or by both. All functions with the grant `store` share the indexes\n(manifest: `grants.store`). Without this grant, every call fails with `unsupported`. When the grant is `read`, the calls that write fail with\n`unsupported`. The name of an index has 1 to 128 letters, digits, dots, hyphens and underscores, and does not begin with a dot. While the index\nhost restarts, calls fail with `unavailable`: call again later. A write that fails with `unavailable` may still have taken effect.",
   "needs": "Grant `store` of the manifest.",
   "types": [
    {
     "name": "metric",
     "kind": "enum",
     "docs": "Measure of how near two vectors are. `cosine` is the cosine of the angle between them, `dot-product` is their dot product, and `euclidean` is\nthe negative square of their distance.",
     "members": [
      {
       "name": "cosine",
       "type": "",
       "docs": ""
      },
      {
       "name": "dot-product",
       "type": "",
       "docs": ""
      },
      {
       "name": "euclidean",
       "type": "",
       "docs": ""
      }
     ]
    },
    {
     "name": "value",
     "kind": "variant",
     "docs": "",
     "members": [
      {
       "name": "text",
       "type": "string",
       "docs": ""
      },
      {
       "name": "number",
       "type": "f64",
       "docs": ""
      },
      {
       "name": "boolean",
       "type": "bool",
       "docs": ""
      }
     ]
    },
    {
     "name": "field",
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
       "type": "value",
       "docs": ""
      }
     ]
    },
    {
     "name": "index-entry",
     "kind": "record",
     "docs": "An entry without its vector, which `upsert` takes separately. The id has 1 to 512 bytes, and the text at most 64 KiB. An entry has at most 32\nfields. The name of a field has 1 to 64 bytes, and a text as its value at most 1,024 bytes.",
     "members": [
      {
       "name": "id",
       "type": "string",
       "docs": ""
      },
      {
       "name": "text",
       "type": "option<string>",
       "docs": "A text that queries find by its words. The index does not compute the vector from the text."
      },
      {
       "name": "fields",
       "type": "list<field>",
       "docs": ""
      }
     ]
    },
    {
     "name": "comparison",
     "kind": "enum",
     "docs": "`equal` holds when the field has one of the values. `not-equal` holds when the field has none of the values, or is missing. The other\ncomparisons take one value, a text or a number. They hold only for fields whose value is of the same kind. Texts are compared byte by byte.",
     "members": [
      {
       "name": "equal",
       "type": "",
       "docs": ""
      },
      {
       "name": "not-equal",
       "type": "",
       "docs": ""
      },
      {
       "name": "less",
       "type": "",
       "docs": ""
      },
      {
       "name": "at-most",
       "type": "",
       "docs": ""
      },
      {
       "name": "greater",
       "type": "",
       "docs": ""
      },
      {
       "name": "at-least",
       "type": "",
       "docs": ""
      }
     ]
    },
    {
     "name": "condition",
     "kind": "record",
     "docs": "A condition on one field of an entry.",
     "members": [
      {
       "name": "field",
       "type": "string",
       "docs": ""
      },
      {
       "name": "comparison",
       "type": "comparison",
       "docs": ""
      },
      {
       "name": "values",
       "type": "list<value>",
       "docs": ""
      }
     ]
    },
    {
     "name": "match",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "entry",
       "type": "index-entry",
       "docs": ""
      },
      {
       "name": "score",
       "type": "f64",
       "docs": "Larger is better. A query by vector scores an entry by the metric of the index, and a query by words by BM25. A query by both makes one\nranking for each. An entry scores the sum of 1 / (60 + rank) over the rankings that contain it; the best rank is 1."
      }
     ]
    },
    {
     "name": "index-info",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "name",
       "type": "string",
       "docs": ""
      },
      {
       "name": "dimensions",
       "type": "u32",
       "docs": ""
      },
      {
       "name": "metric",
       "type": "metric",
       "docs": ""
      },
      {
       "name": "entries",
       "type": "u64",
       "docs": ""
      },
      {
       "name": "bytes",
       "type": "u64",
       "docs": "Bytes of the index that count towards the tenant's limits and storage quota."
      }
     ]
    }
   ],
   "calls": [
    {
     "name": "create",
     "signature": "create: func(name: string, dimensions: u32, metric: metric) -> future<result<index-info, error>>",
     "docs": "Makes an index for vectors of 1 to 4,096 values. When the tenant already has an index of this name with the same dimensions and metric, that\nindex stays as it is. When its dimensions or metric differ, the call fails with `invalid-argument`.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "invalid-argument"
     ],
     "errorsTitle": "Errors",
     "c": "pie_index_create"
    },
    {
     "name": "upsert",
     "signature": "upsert: func(name: string, entries: list<index-entry>, vectors: list<f32>) -> future<result<_, error>>",
     "docs": "Stores up to 256 entries, all or none. An entry replaces an earlier entry with the same id. `vectors` has the vectors of all entries one after\nthe other, in the order of `entries`. Entries and vectors together have at most 4 MiB. Fails with `limit-exceeded` when the tenant's indexes\nhave no room.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "limit-exceeded"
     ],
     "errorsTitle": "Errors",
     "c": "pie_index_upsert"
    },
    {
     "name": "delete-entries",
     "signature": "delete-entries: func(name: string, ids: list<string>) -> future<result<u32, error>>",
     "docs": "Deletes up to 256 entries by their ids. Ignores ids that have no entry. Completes with the number of deleted entries.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_index_delete_entries"
    },
    {
     "name": "query",
     "signature": "query: func(name: string, vector: option<list<f32>>, text: option<string>, filter: list<condition>, limit: u32) -> future<result<list<match>, error>>",
     "docs": "The best entries that fulfil all conditions of `filter`, the best one first. `limit` is the maximum number of entries, 1 to 256. A filter has at\nmost 16 conditions with at most 64 values each. A query needs a vector, a text of at most 8,192 bytes, or both. A text finds entries that have\nany of its first 16 words. In a large index, only the rarer of these words count, and the search for the nearest vectors is approximate: it\nmisses about one in a hundred.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_index_query"
    },
    {
     "name": "stats",
     "signature": "stats: func(name: string) -> future<result<index-info, error>>",
     "docs": "Describes one index.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_index_stats"
    },
    {
     "name": "list-indexes",
     "signature": "list-indexes: func() -> future<result<list<index-info>, error>>",
     "docs": "Describes all indexes of the tenant, ordered by name.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_index_list_indexes"
    },
    {
     "name": "drop-index",
     "signature": "drop-index: func(name: string) -> future<result<bool, error>>",
     "docs": "Deletes an index with its entries. Completes with false when there was no such index.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_index_drop_index"
    }
   ]
  },
  {
   "name": "store",
   "id": "pie:inferlet/store@0.1.0",
   "docs": "Durable values by key, shared by a tenant's functions that have the grant `store` (manifest: `grants.store`). Without the grant every call\nfails with `unsupported`; with the grant `read`, so do the calls that write. Keys have 1 to 512 bytes of UTF-8, values at most 1 MiB.\n`limit-exceeded` when the tenant's store is full. A call costs one round trip to the platform's store, about 0.2 ms.",
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
       "docs": "Grows with every write of the key. `compare-and-set` compares it."
      }
     ]
    }
   ],
   "calls": [
    {
     "name": "get",
     "signature": "get: func(key: string) -> future<result<option<entry>, error>>",
     "docs": "The value of a key, or none.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_store_get"
    },
    {
     "name": "set",
     "signature": "set: func(key: string, value: list<u8>, time-to-live: option<u32>) -> future<result<u64, error>>",
     "docs": "Writes a value over any earlier one. Completes with its version. The store deletes the value after `time-to-live` seconds, if given.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_store_set"
    },
    {
     "name": "compare-and-set",
     "signature": "compare-and-set: func(key: string, expected: option<u64>, value: list<u8>) -> future<result<option<u64>, error>>",
     "docs": "Writes a value if the key has the version `expected` (none: if the key has no value). Completes with the new version, or with none when\nthe version differs: read the value again. The key keeps its time to live.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_store_compare_and_set"
    },
    {
     "name": "delete-key",
     "signature": "delete-key: func(key: string) -> future<result<bool, error>>",
     "docs": "Deletes a value. Completes with false when there was none.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_store_delete_key"
    },
    {
     "name": "exists",
     "signature": "exists: func(key: string) -> future<result<bool, error>>",
     "docs": "",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_store_exists"
    },
    {
     "name": "list-keys",
     "signature": "list-keys: func(prefix: string, after: option<string>, limit: u32) -> future<result<list<string>, error>>",
     "docs": "Keys that begin with `prefix` and follow `after`, ordered by their bytes. Returns at most `limit` keys (1 to 1,000).",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_store_list_keys"
    }
   ]
  },
  {
   "name": "messaging",
   "id": "pie:inferlet/messaging@0.1.0",
   "docs": "Messages among the inferlets of one tenant. Each function needs the grant `messaging` (manifest: `grants.messaging`); without the grant,\nevery call fails with `unsupported`. Names of topics and queues have 1 to 128 characters: letters, digits, `.`, `_`, `-`, `/`. A message\nhas at most 1 MiB. A call costs one round trip to the platform's store, about 0.2 ms.",
   "needs": "Grant `messaging` of the manifest.",
   "types": [
    {
     "name": "envelope",
     "kind": "record",
     "docs": "A message and its sender.",
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
     "docs": "A subscription of a topic. It receives, in order, the messages that are broadcast after `ready` has completed. Dropping the resource ends the\nsubscription.",
     "members": []
    }
   ],
   "calls": [
    {
     "name": "broadcast",
     "signature": "broadcast: func(topic: string, message: message) -> future<result<u32, error>>",
     "docs": "Sends a message to all current subscriptions of `topic`. Later subscriptions do not get the message. Completes with the number of subscriptions\nto which the message was sent.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_messaging_broadcast"
    },
    {
     "name": "push",
     "signature": "push: func(name: string, message: message) -> future<result<_, error>>",
     "docs": "Appends a message to a queue. At most one `pull` gets the message. Fails with `limit-exceeded` when the queue holds 10,000 messages or 16 MiB,\nor when all queues of the tenant together hold 64 MiB. The platform deletes a queue after a day without use.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "limit-exceeded"
     ],
     "errorsTitle": "Errors",
     "c": "pie_messaging_push"
    },
    {
     "name": "pull",
     "signature": "pull: func(name: string) -> future<result<envelope, error>>",
     "docs": "Takes the first message of a queue. Waits while the queue is empty.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_messaging_pull"
    },
    {
     "name": "subscription.constructor",
     "signature": "constructor(topic: string)",
     "docs": "An inferlet may have 64 subscriptions at once. On a subscription beyond these, `ready` and `next` fail with `limit-exceeded`.",
     "cost": "Issued without waiting.",
     "errors": [
      "limit-exceeded"
     ],
     "errorsTitle": "Later calls report",
     "c": "pie_messaging_subscription_new"
    },
    {
     "name": "subscription.ready",
     "signature": "ready: func() -> future<result<_, error>>",
     "docs": "Completes once the subscription is in effect: it receives messages that are broadcast later.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_messaging_subscription_ready"
    },
    {
     "name": "subscription.next",
     "signature": "next: func() -> future<result<envelope, error>>",
     "docs": "The next message; waits for one. At most 1,024 messages with 4 MiB may be unread. The platform drops a message that does not fit, or for which\nthe tenant's share of the runtime's memory has no room. At the place of dropped messages, `next` fails once with `limit-exceeded`. It fails\nwith `unavailable` where the inferlet may have missed messages because the platform's store was away, and with `closed` after `unsubscribe`.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "limit-exceeded",
      "unavailable",
      "closed"
     ],
     "errorsTitle": "Errors",
     "c": "pie_messaging_subscription_next"
    },
    {
     "name": "subscription.unsubscribe",
     "signature": "unsubscribe: func()",
     "docs": "",
     "cost": "Issued without waiting.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_messaging_subscription_unsubscribe"
    }
   ]
  },
  {
   "name": "http",
   "id": "pie:inferlet/http@0.1.0",
   "docs": "HTTP requests to the hosts that the function was granted (manifest: `grants.hosts`). A request or redirect to another host fails with\n`unsupported`. The platform refuses addresses of private networks, unless its operator allows them.",
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
       "docs": "`GET`, `POST`, … `invalid-argument` for a text that is not a token of RFC 9110."
      },
      {
       "name": "url",
       "type": "string",
       "docs": "A URL with `http:` or `https:`, without user and password."
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
       "docs": "Time limit for the head of the response, including redirects: 30,000 by default, at most the invocation's remaining time."
      },
      {
       "name": "redirects",
       "type": "u32",
       "docs": "Number of redirects to follow (0 to 10), each to a granted host. A redirect beyond this number is itself the response."
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
       "docs": "The header lines, with names in lower case. A name may occur several times."
      },
      {
       "name": "url",
       "type": "string",
       "docs": "The URL of the response, after redirects."
      }
     ]
    },
    {
     "name": "exchange",
     "kind": "resource",
     "docs": "A request in progress and its response. Dropping the resource closes the connection.",
     "members": []
    }
   ],
   "calls": [
    {
     "name": "exchange.constructor",
     "signature": "constructor(request: request)",
     "docs": "Sends the request. An inferlet may have 64 requests in progress; `head` reports one more as `limit-exceeded`.",
     "cost": "Issued without waiting.",
     "errors": [
      "limit-exceeded"
     ],
     "errorsTitle": "Later calls report",
     "c": "pie_http_exchange_new"
    },
    {
     "name": "exchange.head",
     "signature": "head: func() -> future<result<response-head, error>>",
     "docs": "The response without its body. `unsupported` for a host that was not granted, `unavailable` when the host cannot be reached or closes the\nconnection, `deadline-exceeded` after the time limit.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "unsupported",
      "unavailable",
      "deadline-exceeded"
     ],
     "errorsTitle": "Errors",
     "c": "pie_http_exchange_head"
    },
    {
     "name": "exchange.read",
     "signature": "read: func() -> future<result<option<list<u8>>, error>>",
     "docs": "The next piece of the body, at most 64 KiB, decompressed; none at the end. `limit-exceeded` after 32 MiB in all, or once one\ndecoder has taken 64 MiB (a body may have two encodings).",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "limit-exceeded"
     ],
     "errorsTitle": "Errors",
     "c": "pie_http_exchange_read"
    }
   ]
  },
  {
   "name": "children",
   "id": "pie:inferlet/children@0.1.0",
   "docs": "Inferlets that this inferlet launches. The function needs the grant `launch` (manifest: `grants.launch`, a list of functions or `\"*\"`);\nwithout it, calls fail with `unsupported`. A child is an invocation with its own id, log and usage. It runs inside the reservation of its\nroot (the ancestor that no inferlet launched), so it starts at once. It ends with its parent at the latest. An inferlet may hold 1,024 child\nhandles; a handle counts until it is dropped, even after the child's end.",
   "needs": "Grant `launch` of the manifest.",
   "types": [
    {
     "name": "failure",
     "kind": "record",
     "docs": "Failure of a child: the code and text of its `error` event.",
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
     "docs": "Outcome of a child.",
     "members": [
      {
       "name": "success",
       "type": "string",
       "docs": "The child's result as JSON text."
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
     "docs": "Launches a function of this tenant. `name` runs the version of the alias `live`; `name@alias` and `name@version` choose another. `input`\nis JSON text of at most 262,144 characters that the function's schema accepts. `started` reports failures.",
     "cost": "Issued without waiting.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_children_child_new"
    },
    {
     "name": "child.started",
     "signature": "started: func() -> future<result<string, error>>",
     "docs": "The child's invocation id. `not-found` when the function does not exist, `invalid-argument` when its schema refuses the input,\n`limit-exceeded` when the root has 64 running descendants or has had 4,096 in all, or when this inferlet is 8 generations below the root.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "not-found",
      "invalid-argument",
      "limit-exceeded"
     ],
     "errorsTitle": "Errors",
     "c": "pie_children_child_started"
    },
    {
     "name": "child.send",
     "signature": "send: func(message: message) -> future<result<_, error>>",
     "docs": "Sends a message to the child's session. `closed` once the child has ended.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "closed"
     ],
     "errorsTitle": "Errors",
     "c": "pie_children_child_send"
    },
    {
     "name": "child.close",
     "signature": "close: func()",
     "docs": "Tells the child that no more messages follow.",
     "cost": "Issued without waiting.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_children_child_close"
    },
    {
     "name": "child.receive",
     "signature": "receive: func() -> future<result<message, error>>",
     "docs": "The next message of the child. `closed` once the child has ended and the inferlet has read all messages.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "closed"
     ],
     "errorsTitle": "Errors",
     "c": "pie_children_child_receive"
    },
    {
     "name": "child.wait",
     "signature": "wait: func() -> future<result<ending, error>>",
     "docs": "Completes when the child has ended. Several calls get the same outcome.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_children_child_wait"
    },
    {
     "name": "child.cancel",
     "signature": "cancel: func()",
     "docs": "Cancels the child. `wait` then completes with the failure `cancelled`, or with the child's result if it returned one first. Dropping the\nresource does the same.",
     "cost": "Issued without waiting.",
     "errors": [
      "cancelled"
     ],
     "errorsTitle": "Later calls report",
     "c": "pie_children_child_cancel"
    }
   ]
  },
  {
   "name": "file-exchange",
   "id": "pie:inferlet/file-exchange@0.1.0",
   "docs": "Files that the client and this invocation exchange, for content that is too large for a message. A file has at most 16 MiB. An invocation\nhas at most 256 files and 64 MiB (128 MiB with its children), and a tenant 1 GiB.\nNames have 1 to 128 characters: letters, digits, `.`, `_`, `-`. The platform keeps files as long as the invocation's events. The HTTP path\nof a file is `/v1/invocations/{id}/files/{name}`.",
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
       "docs": "Size in bytes."
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
     "docs": "Stores a file for the client, and announces it by a `message` event `{\"file\": {\"name\", \"mediaType\", \"bytes\"}}`. Replaces a file of the\nsame name.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_file_exchange_send_file"
    },
    {
     "name": "receive-file",
     "signature": "receive-file: func(name: string) -> future<result<file, error>>",
     "docs": "A file of the invocation, from the client or from the inferlet. Waits until the file exists. `closed` when the client closes the session first.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [
      "closed"
     ],
     "errorsTitle": "Errors",
     "c": "pie_file_exchange_receive_file"
    },
    {
     "name": "list-files",
     "signature": "list-files: func() -> future<result<list<file-info>, error>>",
     "docs": "The present files, ordered by name.",
     "cost": "Waits: completes later; several at once overlap.",
     "errors": [],
     "errorsTitle": "Errors",
     "c": "pie_file_exchange_list_files"
    }
   ]
  },
  {
   "name": "environment",
   "id": "pie:inferlet/environment@0.1.0",
   "docs": "Named texts of the function's version: the tenant's secrets that the manifest lists (`secrets`), and plain variables (`environment`). A version\nkeeps the values that the secrets had at its deployment. A name has upper-case letters, digits and `_`. Reading a value is immediate. In log\nlines and error messages, the platform replaces each value of four or more characters by `[NAME]`.",
   "needs": "Always there.",
   "types": [],
   "calls": [
    {
     "name": "get-variable",
     "signature": "get-variable: func(name: string) -> option<string>",
     "docs": "The value of a variable or secret, or none when the manifest does not list it.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_environment_get_variable"
    },
    {
     "name": "list-variables",
     "signature": "list-variables: func() -> list<string>",
     "docs": "The names of all variables and secrets, in order.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_environment_list_variables"
    }
   ]
  },
  {
   "name": "person",
   "id": "pie:inferlet/person@0.1.0",
   "docs": "Questions to a person. An invocation that asks a question ends its attempt and waits. Meanwhile it has no instance, holds no pages, embeds or\nqueues, and takes no slot; it keeps waiting across restarts of the platform. When a person answers\n(`POST /v1/invocations/{id}/answer`, `pie answer`), or the time has passed, a new attempt runs from the beginning with the same input. There,\n`resumed` returns the state that the last attempt left, and the answer.",
   "needs": "Always there.",
   "types": [
    {
     "name": "question",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "text",
       "type": "string",
       "docs": "Text for the person; 1 to 4,096 characters."
      },
      {
       "name": "schema",
       "type": "string",
       "docs": "JSON Schema that the answer must match, as JSON text of at most 16,384 characters."
      },
      {
       "name": "timeout-seconds",
       "type": "u32",
       "docs": "Time that the invocation waits for an answer: 1 to 2,592,000 seconds (30 days)."
      },
      {
       "name": "state",
       "type": "string",
       "docs": "Text for the next attempt; at most 262,144 characters."
      }
     ]
    },
    {
     "name": "answer",
     "kind": "variant",
     "docs": "",
     "members": [
      {
       "name": "answered",
       "type": "string",
       "docs": "The answer as JSON text that the schema accepts."
      },
      {
       "name": "expired",
       "type": "",
       "docs": "The time has passed without an answer."
      }
     ]
    },
    {
     "name": "resumption",
     "kind": "record",
     "docs": "",
     "members": [
      {
       "name": "state",
       "type": "string",
       "docs": "The `state` of the last question."
      },
      {
       "name": "answer",
       "type": "answer",
       "docs": ""
      }
     ]
    }
   ],
   "calls": [
    {
     "name": "ask",
     "signature": "ask: func(question: question) -> result<_, error>",
     "docs": "Asks when `run` returns a result: that result is dropped, and the invocation waits instead of ending. When `run` fails, nothing is asked.\n`invalid-argument` for a question that exceeds a limit, a schema that cannot be used, or a second question; `unsupported` in a child.",
     "cost": "Answered at once.",
     "errors": [
      "invalid-argument",
      "unsupported"
     ],
     "errorsTitle": "Errors",
     "c": "pie_person_ask"
    },
    {
     "name": "resumed",
     "signature": "resumed: func() -> option<resumption>",
     "docs": "The answer to the last question, or none in an invocation that has not asked.",
     "cost": "Answered at once.",
     "errors": [],
     "errorsTitle": "Later calls report",
     "c": "pie_person_resumed"
    }
   ]
  }
 ],
 "exports": [
  {
   "name": "run",
   "signature": "run: async func(input: string) -> result<string, string>",
   "docs": "Runs one invocation. `input` is the request body: JSON that the manifest's schema accepts. The result is JSON, too. An error makes\nthe invocation fail, with the error's text as the cause.",
   "cost": "Runs as long as the invocation.",
   "errors": [],
   "errorsTitle": "Errors",
   "c": "pie_run"
  }
 ]
};
