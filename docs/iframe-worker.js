// Browsers start no worker for a page that is opened from a file. The site's search runs in one, so
// there its script gets a hidden frame instead, which speaks to the page as a worker would.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.documentElement.append(frame)
      this.inside = frame.contentWindow
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      this.inside.importScripts = () => undefined // English needs no further script
      const script = this.inside.document.createElement("script")
      this.ready = new Promise((resolve) => (script.onload = resolve))
      script.src = new URL(url, location.href).href
      this.inside.document.body.append(script)
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.inside.frameElement.remove()
    }
  }
}
