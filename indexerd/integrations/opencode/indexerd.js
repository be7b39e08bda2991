// indexerd integration for opencode: `indexerd integrate opencode` installs this file, and
// `indexerd integrate opencode --remove` removes it.
//
// In: opencode's calls to its plugins. Out:
// - after a prompt with `@@…`, text parts about the sessions it refers to;
// - after the first prompt of a session that an earlier process began, its relevant context;
// - indexerd's MCP server, unless one of that name is configured: no configuration is edited;
// - the session's id for tools about the current session, since an MCP server does not know it, and
//   the turn for tools that ask questions;
// - a toast with the outcome of references: which failed, and why.
//
// Never: an exception, output on stdout or stderr, a change to what the user typed, a connection
// for a prompt that needs none, or a wait of more than a few seconds, unless a question is asked.
//
// Pitfalls: opencode orders a message's parts by their ids, not by when they were added, so our
// ids begin with the last of the others; older versions call everything that a plugin's file
// exports; and there, plugins' tools need zod, which this file cannot import. So in all versions
// the tools come from the MCP server.

import { randomUUID } from "node:crypto"
import { createConnection } from "node:net"
import { homedir } from "node:os"
import { join, resolve } from "node:path"

/** The command of indexerd; `integrate` replaces the name by an array. @type {string[]} */
// @ts-ignore: the name is defined only by that replacement
const COMMAND = typeof __INDEXERD_COMMAND__ === "undefined" ? ["indexerd"] : __INDEXERD_COMMAND__

const SERVER = "indexerd"
const QUICK_MS = 2000 // for answers that need no model
const ASKING_MS = 35_000 // for a question; longer if the daemon says so
const LOCAL_MS = 1000 // for opencode's own answers
const REQUEST_MAX = 1_000_000 // bytes; the socket accepts a line of 1 MiB
const ANSWER_MAX = 4_000_000 // characters
const ADDED_MAX = 300_000 // characters added to a prompt
const PARTS_MAX = 8 // added to a prompt: one digit of their ids
const SESSIONS_MAX = 4000 // sessions that are remembered
const NEWEST = 50 // messages of a session that are searched for a context
const READING_MS = 8000 // minimum duration of a toast with failures

const PROCESS = `opencode-${randomUUID()}`
/** Tools about the session that calls them. */
const OF_SESSION = [`${SERVER}_set_relevant_context`, `${SERVER}_get_relevant_context`]
/** Tools whose questions are limited in each turn. */
const OF_TURN = [`${SERVER}_query_session`, `${SERVER}_expand_references`]

/** The sessions of this process, and their last prompts. @type {Map<string, string>} */
const known = new Map()

/**
 * @typedef {{id: string, sessionID: string, messageID: string, type: string, text?: string,
 *   synthetic?: boolean, ignored?: boolean, metadata?: Record<string, unknown>}} Part
 * @typedef {{id: string, sessionID: string}} Message
 * @typedef {{message: Message, parts: Part[]}} Prompted
 * @typedef {{text: string, metadata: Record<string, unknown>}} Addition
 */

/**
 * Wraps a hook so that its failure has no effect.
 * @template {unknown[]} Given
 * @param {(...given: Given) => Promise<void>} work
 * @returns {(...given: Given) => Promise<void>}
 */
function quietly(work) {
  return async (...given) => {
    try {
      await work(...given)
    } catch {
      // the user's turn continues without it
    }
  }
}

/**
 * Return opencode's answer, or undefined if it fails or takes too long.
 * @param {() => Promise<any>} question
 * @returns {Promise<any>}
 */
function local(question) {
  return new Promise((settle) => {
    const timer = setTimeout(() => settle(undefined), LOCAL_MS)
    const done = (/** @type {any} */ answer) => {
      clearTimeout(timer)
      settle(answer)
    }
    Promise.resolve().then(question).then(done, () => done(undefined))
  })
}

/**
 * @param {Record<string, string | undefined>} env
 * @returns {string} the path of the daemon's socket
 */
function socketPath(env) {
  const home = env.HOME?.startsWith("/") ? env.HOME : homedir()
  const whole = (/** @type {string} */ path) =>
    path === "~" || path.startsWith("~/") ? join(home, path.slice(1)) : resolve(path)
  const name = "indexerd.sock"
  if (env.INDEXERD_SOCKET) return whole(env.INDEXERD_SOCKET)
  if (env.XDG_RUNTIME_DIR?.startsWith("/")) return join(env.XDG_RUNTIME_DIR, "indexerd", name)
  if (env.INDEXERD_STATE_DIR) return join(whole(env.INDEXERD_STATE_DIR), name)
  if (env.XDG_STATE_HOME?.startsWith("/")) return join(env.XDG_STATE_HOME, "indexerd", name)
  const states = process.platform === "darwin" ? "Library/Application Support" : ".local/state"
  return join(home, states, "indexerd", name)
}

/**
 * Make a request on its own connection, after a `hello`: if the daemon does not answer that
 * quickly, give up, however long the answer itself may take.
 * @param {string} method
 * @param {Record<string, unknown>} params
 * @param {number} patience milliseconds from the answer to `hello` to this one
 * @returns {Promise<{result?: any, settings?: any}>} without a result if there is none in time
 */
function ask(method, params, patience = QUICK_MS) {
  return new Promise((settle) => {
    const heard = new Map()
    /** @type {import("node:net").Socket | undefined} */
    let socket
    let over = false
    let timer = setTimeout(() => end(), QUICK_MS)
    const end = () => {
      over = true
      clearTimeout(timer)
      settle({ result: heard.get(2), settings: heard.get(1)?.settings })
      socket?.destroy()
    }
    const hear = (/** @type {string} */ line) => {
      const { id, result } = JSON.parse(line)
      if (over || heard.has(id) || (id !== 1 && id !== 2)) return
      heard.set(id, result)
      if (id === 2) return end()
      clearTimeout(timer)
      timer = setTimeout(end, longer(patience, result?.settings))
    }
    try {
      const call = (/** @type {object} */ one) => `${JSON.stringify({ jsonrpc: "2.0", ...one })}\n`
      const request = call({ id: 1, method: "hello" }) + call({ id: 2, method, params })
      if (Buffer.byteLength(request) > REQUEST_MAX) return end()
      let held = ""
      socket = createConnection({ path: socketPath(process.env) })
      socket.setEncoding("utf8")
      socket.on("error", end)
      socket.on("close", end)
      socket.on("connect", () => socket?.write(request))
      socket.on("data", (/** @type {string} */ more) => {
        try {
          const lines = (held + more).split("\n")
          held = lines.pop() ?? ""
          if (held.length > ANSWER_MAX) return end()
          lines.forEach(hear)
        } catch {
          end() // not our protocol
        }
      })
    } catch {
      end()
    }
  })
}

/**
 * The wait for an answer; for a question, as long as the daemon allows.
 * @param {number} patience
 * @param {any} settings
 */
function longer(patience, settings) {
  const allowed = Number(settings?.queryTimeoutSeconds)
  if (patience === QUICK_MS || !(allowed > 0 && allowed <= 600)) return patience
  return Math.max(patience, allowed * 1000 + 5000)
}

/**
 * The newest messages of a session, oldest first, without the current prompt.
 * @param {any} client
 * @param {string} session
 * @returns {Promise<{parts?: Part[]}[]>}
 */
async function newest(client, session) {
  const some = { path: { id: session }, query: { limit: NEWEST } }
  const held = await local(() => client.session.messages(some))
  return Array.isArray(held?.data) ? held.data : []
}

/**
 * Whether our text is still in the model's context: nothing was compacted since.
 * @param {{parts?: Part[]}[]} messages
 * @param {string} text
 */
function stands(messages, text) {
  const parts = messages.flatMap((one) => one.parts ?? [])
  const compacted = parts.map((part) => part.type).lastIndexOf("compaction")
  return parts.slice(compacted + 1).some((part) => part.synthetic && part.text === text)
}

/**
 * Whether a session is a sub-agent's: its prompts are a model's, and must not be expanded.
 * @param {any} client
 * @param {string} session
 */
async function ofHelper(client, session) {
  const held = await local(() => client.session.get({ path: { id: session } }))
  return Boolean(held?.data?.parentID)
}

/**
 * The relevant context of a session that is new to this process, unless it was added recently:
 * `opencode run --continue` is a new process each time.
 * @param {any} client
 * @param {Message} message
 * @returns {Promise<Addition[]>}
 */
async function resumed(client, { id, sessionID: session }) {
  const before = known.delete(session)
  known.set(session, id)
  if (before) return []
  if (known.size > SESSIONS_MAX) known.delete([...known.keys()][0])
  const messages = await newest(client, session)
  if (!messages.length) return []
  const { result } = await ask("resume_context", { session, resumeId: `${PROCESS}-${session}` })
  const added = additions([{ content: result?.text, customType: "resume-context" }])
  return added.filter((one) => !stands(messages, one.text))
}

/**
 * The texts for a prompt's references.
 * @param {any} client
 * @param {{text: string, sessionId: string, cwd?: string, turnId: string}} prompt
 * @returns {Promise<Addition[]>}
 */
async function referred(client, prompt) {
  if (!prompt.text.includes("@@") || (await ofHelper(client, prompt.sessionId))) return []
  if (Buffer.byteLength(JSON.stringify(prompt)) > REQUEST_MAX - 200) {
    tell(client, [], ["this prompt is too long: its @@ references were not expanded"])
    return []
  }
  const { result, settings } = await ask("expand", prompt, asks(prompt.text) ? ASKING_MS : QUICK_MS)
  tell(client, result?.statusText, result?.failures, settings?.notificationAutoClearMs)
  return additions(Array.isArray(result?.messages) ? result.messages : [])
}

/**
 * @param {any[]} messages the daemon's
 * @returns {Addition[]}
 */
function additions(messages) {
  return messages
    .filter((one) => typeof one?.content === "string" && one.content.trim())
    .map((one) => ({ text: one.content, metadata: { customType: one.customType, ...one.details } }))
}

/**
 * Whether a prompt with `@@` may ask a session a question; the daemon's rule is narrower.
 * @param {string} text
 */
function asks(text) {
  return /[?\uff1f\u061f\u2047-\u2049]/.test(text.slice(text.indexOf("@@")))
}

/**
 * Show the outcome of references, without waiting.
 * @param {any} client
 * @param {unknown} texts
 * @param {unknown} failures a line each
 * @param {unknown} duration milliseconds
 */
function tell(client, texts, failures, duration) {
  const list = (/** @type {unknown} */ all) => (Array.isArray(all) ? all.map(String) : [])
  const failed = list(failures)
  const message = [list(texts).join(" · "), ...failed].filter(Boolean).join("\n")
  if (!message) return
  const variant = failed.length || message.includes("⚠") ? "warning" : "success"
  const wanted = Math.max(Number(duration) || 0, failed.length ? READING_MS : 0)
  const ms = wanted > 0 ? { duration: wanted } : {}
  local(() => client.tui.showToast({ body: { message, variant, ...ms } }))
}

/**
 * Add texts to a prompt; opencode stores them with it, and shows them only to the model.
 * @param {Part[]} parts the prompt's own list, which opencode keeps
 * @param {Message} message
 * @param {Addition[]} added
 */
function append(parts, message, added) {
  const last = parts.map((part) => part.id).sort().at(-1)
  if (!last) return
  let room = ADDED_MAX
  const kept = added.filter((one) => (room -= one.text.length) >= 0).slice(0, PARTS_MAX)
  kept.forEach(({ text, metadata }, nth) => {
    const owner = { id: `${last}${nth}`, sessionID: message.sessionID, messageID: message.id }
    parts.push({ ...owner, type: "text", text, synthetic: true, metadata: { indexerd: metadata } })
  })
}

/**
 * The plugin, which must be the only export of this file.
 * @param {{client: any, directory: string}} input
 */
export const Indexerd = async ({ client, directory }) => ({
  config: quietly(async (/** @type {any} */ config) => {
    const server = { type: "local", command: [...COMMAND, "mcp"] }
    config.mcp = { [SERVER]: server, ...config.mcp }
  }),

  "chat.message": quietly(async (/** @type {unknown} */ _, /** @type {Prompted} */ prompted) => {
    const { message, parts } = prompted
    const typed = parts.filter((part) => part.type === "text" && !part.synthetic && !part.ignored)
    const text = typed.map((part) => part.text).join("\n\n")
    const sessionId = message.sessionID
    const prompt = { text, sessionId, cwd: directory, turnId: message.id }
    const added = await Promise.all([resumed(client, message), referred(client, prompt)])
    append(parts, message, added.flat())
  }),

  "tool.execute.before": quietly(async (/** @type {any} */ of, /** @type {any} */ call) => {
    if (OF_SESSION.includes(of.tool) && !call.args.session) call.args.session = of.sessionID
    const turn = known.get(of.sessionID)
    if (OF_TURN.includes(of.tool) && turn) call.args.turnId = `${turn}-tools` // not the prompt's own
  }),
})
