// Beside RoyaleGym's replay page: what the policy thought at each decision. It reads the page's own clock and flip
// switch and moves its own scrubber, so that the page itself stays as RoyaleGym wrote it.
(function () {
  "use strict";
  var T = JSON.parse(document.getElementById("decisions-data").textContent);
  var clock = document.getElementById("clock"), scrub = document.getElementById("scrub");
  var board = document.getElementById("board"), flip = document.getElementById("flip");
  var view = JSON.parse(document.getElementById("replay-data").textContent);
  var tickAt = view.frames.map(function (f) { return f[view.frame_fields.indexOf("tick")]; });
  var handAt = view.frames.map(function (f) { return f[view.frame_fields.indexOf("hands")]; });
  var TX = view.arena.tiles_x, TY = view.arena.tiles_y, COLOR = ["#2f6fe4", "#e0483c"];
  if (!view.source.frame_every_tick) {
    var interp = document.getElementById("interp");
    interp.checked = true; interp.dispatchEvent(new Event("change"));
  }

  // ---- the panel --------------------------------------------------------------------------------------------
  var seats = [0, 1].filter(function (s) { return T.decisions.some(function (d) { return d.seat === s; }); });
  var curve = document.createElement("section");
  curve.id = "curve";
  document.getElementById("controls").after(curve);
  seats.forEach(function (s) {
    // The page rewrites its own side panels at every frame, so ours stands under one, in a column with it.
    var side = document.getElementById("side" + s), column = document.createElement("div");
    side.parentNode.insertBefore(column, side);
    column.className = "column";
    column.appendChild(side);
    column.insertAdjacentHTML("beforeend", "<section class='side thought' aria-label='decisions of " + esc(T.players[s]) +
      "'><h2 style='color:" + COLOR[s] + "'>" + esc(T.players[s]) + "</h2><div class='kv' id='when" + s +
      "'></div><div id='top" + s + "'></div></section>");
  });
  var style = document.createElement("style");
  style.textContent = "#curve{width:100%;max-width:760px;margin-top:8px;background:#fff;border-radius:8px;" +
    "border:1px solid var(--line);padding:4px}.column{display:flex;flex-direction:column;gap:12px}" +
    ".act{position:relative;display:flex;justify-content:space-between;padding:1px 4px;font-size:12px;" +
    "font-variant-numeric:tabular-nums;overflow:hidden}.act i{position:absolute;inset:1px auto 1px 0;" +
    "background:#8883;border-radius:3px}.act span{position:relative;white-space:nowrap}.act.did{font-weight:600}" +
    "#aims{position:absolute;pointer-events:none;left:0;top:0;background:none;box-shadow:none}" +
    "#curve svg{width:100%;cursor:pointer;display:block}#curve text{font-size:10px;fill:var(--muted)}" +
    "@media(max-width:700px){.column{flex:1 1 150px}.column .side{width:auto}#boardwrap{order:-1;flex-basis:100%}}";
  document.head.appendChild(style);

  function esc(s) {
    return String(s).replace(/[&<>"']/g, function (c) { return "&#" + c.charCodeAt(0) + ";"; });
  }
  function frameOf(tick) {
    var lo = 0, hi = tickAt.length - 1;
    while (lo < hi) { var mid = (lo + hi + 1) >> 1; if (tickAt[mid] <= tick) lo = mid; else hi = mid - 1; }
    return lo;
  }
  function place(action) {
    var a = T.actions, grid = a.tiles_y * a.tiles_x;
    if (action === 0) return null;
    if (action > a.slots * grid) return { button: action - a.slots * grid };
    var rest = action - 1, slot = Math.floor(rest / grid);
    rest -= slot * grid;
    return { slot: slot, x: rest % a.tiles_x, y: Math.floor(rest / a.tiles_x) };
  }
  function named(action, d) {
    var p = place(action);
    if (!p) return "wait";
    if (p.button) return a_button(p.button);
    var card = handAt[frameOf(d.tick)][d.seat][p.slot];
    return (card >= 0 && view.cards[card] ? view.cards[card].name : "slot " + p.slot) + " " + p.x + "," + p.y;
  }
  function a_button(n) { return T.actions.slots ? "ability " + n : "action " + n; }
  function percent(p) { return (100 * p).toFixed(p < 0.0995 ? 1 : 0) + " %"; }

  // ---- the curve: value where there is a critic, else the chance to play -----------------------------------
  var valued = T.decisions.some(function (d) { return d.value !== null; });
  var last = Math.max(1, tickAt[tickAt.length - 1]), W = 700, H = 90;
  function height(d) { return valued ? d.value : 1 - d.p_wait; }
  var top = 1, low = valued ? -1 : 0;
  T.decisions.forEach(function (d) { top = Math.max(top, height(d)); low = Math.min(low, height(d)); });
  function sx(tick) { return 34 + (W - 40) * tick / last; }
  function sy(v) { return 8 + (H - 22) * (top - v) / (top - low); }
  var svg = "<svg viewBox='0 0 " + W + " " + H + "' role='img' aria-label='" +
    (valued ? "value over the battle" : "chance to play over the battle") + "'>" +
    "<line x1='34' x2='" + (W - 6) + "' y1='" + sy(0) + "' y2='" + sy(0) + "' stroke='#8886'/>" +
    "<text x='2' y='" + (sy(top) + 4) + "'>" + top.toFixed(1) + "</text><text x='2' y='" + (sy(low) + 4) + "'>" +
    low.toFixed(1) + "</text><text x='34' y='" + (H - 2) + "'>" + (valued ? "value (scaled return)" : "chance to play") +
    " at each decision; click to go there</text>";
  seats.forEach(function (s) {
    var points = T.decisions.filter(function (d) { return d.seat === s; }).map(function (d) {
      return sx(d.tick).toFixed(1) + "," + sy(height(d)).toFixed(1);
    });
    svg += "<polyline fill='none' stroke-width='1.4' stroke='" + COLOR[s] + "' points='" + points.join(" ") + "'/>";
  });
  document.getElementById("curve").innerHTML = svg + "<line id='now' y1='4' y2='" + (H - 14) +
    "' stroke='currentColor'/></svg>";
  document.querySelector("#curve svg").addEventListener("click", function (e) {
    var b = this.getBoundingClientRect();
    var tick = ((e.clientX - b.left) / b.width * W - 34) / (W - 40) * last;
    scrub.value = String(frameOf(tick)); scrub.dispatchEvent(new Event("input"));
  });

  // ---- where it aims: rings on the board, in a canvas of their own ------------------------------------------
  var aims = document.createElement("canvas");
  aims.id = "aims";
  var holder = document.createElement("div");
  holder.style.position = "relative";
  board.parentNode.insertBefore(holder, board);
  holder.appendChild(board); holder.appendChild(aims);

  function drawAims(now) {
    var w = board.clientWidth, h = board.clientHeight, ratio = window.devicePixelRatio || 1;
    aims.style.width = w + "px"; aims.style.height = h + "px";
    aims.width = w * ratio; aims.height = h * ratio;
    var g = aims.getContext("2d"), cell = w / TX;
    g.scale(ratio, ratio);
    now.forEach(function (d) {
      d.top.forEach(function (pair) {
        var p = place(pair[0]);
        if (!p || p.button) return;
        // A policy's tiles are its own seat's: red sees the board turned round.
        var turned = (d.seat === 1) !== flip.checked;
        var x = p.x + 0.5, y = TY - p.y - 0.5;
        if (turned) { x = TX - x; y = TY - y; }
        g.globalAlpha = Math.max(0.25, Math.min(1, Math.sqrt(pair[1])));
        g.strokeStyle = COLOR[d.seat]; g.lineWidth = pair[0] === d.action ? 3 : 1.5;
        g.beginPath(); g.arc(x * cell, y * cell, cell * (0.35 + 0.6 * Math.sqrt(pair[1])), 0, 7); g.stroke();
      });
    });
  }

  function update() {
    var tick = Number((clock.textContent.match(/\d+/) || [0])[0]), now = [];
    seats.forEach(function (s) {
      var d = null;
      T.decisions.forEach(function (x) { if (x.seat === s && x.tick <= tick) d = x; });
      document.getElementById("when" + s).textContent = !d ? "no choice yet" : "tick " + d.tick +
        (d.value === null ? "" : ", value " + d.value.toFixed(2)) + ", wait " + percent(d.p_wait);
      document.getElementById("top" + s).innerHTML = d ? d.top.map(function (pair) {
        return "<div class='act" + (pair[0] === d.action ? " did" : "") + "'><i style='width:" +
          (100 * pair[1]).toFixed(1) + "%'></i><span>" + esc(named(pair[0], d)) + (pair[0] === d.action ? " ✓" : "") +
          "</span><span>" + percent(pair[1]) + "</span></div>";
      }).join("") + (d.top.some(function (p) { return p[0] === d.action; }) ? "" :
        "<div class='act did'><span>did: " + esc(named(d.action, d)) + "</span></div>") : "";
      if (d && tick - d.tick < 20) now.push(d);
    });
    var x = sx(tick), line = document.getElementById("now");
    line.setAttribute("x1", x); line.setAttribute("x2", x);
    drawAims(now);
  }
  new MutationObserver(update).observe(clock, { childList: true, characterData: true, subtree: true });
  flip.addEventListener("change", update);
  window.addEventListener("resize", function () { setTimeout(update, 0); });
  update();
})();
